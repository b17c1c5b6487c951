#include "compiler/RankMemory.h"
#include "dialects/plan/PlanOps.h"
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/TrainingPrograms.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace tessera;

static void addProgram(RankMemory &memory, llvm::StringRef name, int64_t arena,
                       int64_t io) {
  if (!llvm::is_contained(artifact::kTrainingPrograms, std::string_view(name)))
    return;
  memory.io += io;
  if (memory.largest.empty() || arena > memory.arena) {
    memory.arena = arena;
    memory.largest = name.str();
  }
}

RankMemory tessera::memoryOf(ModuleOp module, int64_t rank,
                             std::string device) {
  RankMemory memory;
  memory.rank = rank;
  memory.device = std::move(device);
  for (auto state : module.getOps<plan::StateOp>())
    memory.state = std::max<int64_t>(
        memory.state,
        llvm::alignTo(static_cast<int64_t>(state.getOffset()) +
                          plan::byteSize(cast<MemRefType>(state.getType())),
                      plan::kAlignment));
  for (auto program : module.getOps<plan::ProgramOp>())
    addProgram(memory, program.getName(), program.getArena(), program.getIo());
  return memory;
}

std::vector<RankMemory> tessera::memoryOf(llvm::StringRef bytes) {
  const artifact::Artifact *root = artifact::GetArtifact(bytes.data());
  std::vector<RankMemory> all;
  for (const artifact::Share *share : *root->shares())
    for (const artifact::DeviceCode *code : *share->devices()) {
      RankMemory &memory = all.emplace_back();
      memory.rank = share->ranks()->Get(0);
      memory.device = code->device()->str();
      memory.state = static_cast<int64_t>(share->state_bytes());
      for (const artifact::Program *program : *code->programs())
        addProgram(memory, program->name()->str(),
                   static_cast<int64_t>(program->arena_bytes()),
                   static_cast<int64_t>(program->io_bytes()));
    }
  return all;
}
