// libFuzzer's entry for the artifact reader. Every test run replays the corpus
// through it; -DTESSERA_FUZZ=ON builds the fuzzer itself. The hash is left out:
// a fuzzer never guesses one, and the validator must stand without it.
#include "runtime/artifact/CollectiveTable.h"
#include "runtime/artifact/KernelTable.h"
#include "runtime/artifact/Shares.h"
#include "runtime/hal/Mesh.h"
#include "runtime/hal/host/Commands.h"
#include "runtime/hal/null/PlanCheck.h"
#include "test/runtime/artifact/TestArtifact.h"

#include <cstdlib>
#include <vector>

using namespace tessera;
using namespace tessera::test;

namespace {

/// What an accepted artifact promises to its users; a breach is a crash.
void check(bool promise) {
  if (!promise)
    std::abort();
}

/// Follows every argument through every iteration, as plainly as can be, and
/// checks that it stays in its space; gives up after `budget` addresses.
class Walk {
public:
  Walk(const Share &share, const DeviceCode &code, const Program &program)
      : share(share), code(code), program(program) {}

  void nodes(const flatbuffers::Vector<flatbuffers::Offset<Node>> &nodes) {
    for (const Node *node : nodes) {
      if (const Loop *loop = node->step_as_Loop()) {
        check(loop->trip() > 0);
        for (std::uint64_t i = 0; i < loop->trip() && --budget > 0; ++i) {
          iterations.push_back(i);
          this->nodes(*loop->body());
          iterations.pop_back();
        }
      } else if (const Copy *copy = node->step_as_Copy()) {
        arg(*copy->from());
        arg(*copy->to());
      } else if (const Fill *fill = node->step_as_Fill()) {
        arg(*fill->to());
      } else if (const Collective *one = node->step_as_Collective()) {
        arg(*one->from());
        arg(*one->to());
      } else if (!node->step_as_Wait()) {
        launch(*node->step_as_Launch());
      }
    }
  }

private:
  void launch(const Launch &launch) {
    const Kernel *kernel = code.kernels()->Get(launch.kernel());
    for (const Instance *instance : *launch.instances()) {
      check(instance->args()->size() == kernel->access()->size());
      if (const auto *sizes = instance->sizes(); sizes && sizes->size() > 0)
        check(reinterpret_cast<std::uintptr_t>(sizes->data()) % 8 == 0);
      for (const Arg *argument : *instance->args())
        arg(*argument);
    }
  }

  void arg(const Arg &arg) {
    --budget;
    // Wider than any sum of these terms, so nothing can wrap.
    unsigned __int128 end = arg.offset();
    end += arg.bytes();
    for (std::size_t i = 0; i < iterations.size(); ++i)
      end += static_cast<unsigned __int128>(arg.loop_strides()->Get(
                 static_cast<flatbuffers::uoffset_t>(i))) *
             iterations[i];
    check(end <= (arg.space() == Space::state   ? share.state_bytes()
                  : arg.space() == Space::arena ? program.arena_bytes()
                                                : program.io_bytes()));
  }

  const Share &share;
  const DeviceCode &code;
  const Program &program;
  std::vector<std::uint64_t> iterations;
  int budget = 10'000;
};

void checkTensors(const flatbuffers::Vector<flatbuffers::Offset<Tensor>> &list,
                  std::uint64_t spaceBytes) {
  for (const Tensor *tensor : list) {
    unsigned __int128 bytes = elementBytes(tensor->type());
    for (const std::int64_t extent : *tensor->shape())
      bytes *= static_cast<std::uint64_t>(extent);
    check(bytes == tensor->bytes());
    check(tensor->bytes() <= spaceBytes &&
          tensor->offset() <= spaceBytes - tensor->bytes());
  }
}

void checkKernels(const DeviceCode &device) {
  const bool isGpu = toView(device.device()).starts_with("cuda:");
  for (const Kernel *kernel : *device.kernels()) {
    check(isGpu == (kernel->gpu() != nullptr));
    if (const GpuKernel *gpu = kernel->gpu())
      check(gpu->threads() >= 32 && gpu->threads() <= 1024 &&
            gpu->threads() % 32 == 0 && gpu->shared_bytes() <= 227 << 10);
  }
  for (const CodeObject *code : *device.code())
    if (code->kernels())
      for (const std::uint32_t kernel : *code->kernels())
        check(kernel < device.kernels()->size());
}

void checkProgram(const ArtifactReader &reader, const DeviceCode &device,
                  const Program &program, std::size_t size) {
  checkTensors(*program.inputs(), program.io_bytes());
  checkTensors(*program.outputs(), program.io_bytes());
  Walk(reader.share(), device, program).nodes(*program.steps());
  (void)hal::checkPlan(reader, device, program, 10'000);
  const std::string table = kernelTable(device, program);
  check(table.find('\x1b') == table.npos);
  // Addresses that are only computed with: no memory lies there.
  auto *space = reinterpret_cast<std::byte *>(std::uintptr_t(1) << 46);
  const hal::Commands commands =
      hal::flatten(device, program, {space, space, space});
  check(commands.pointers.size() < size); // an argument takes bytes
}

/// A rank's elements lie one behind the other in its share, and in the whole.
void checkCuts(const Tensor &tensor, const Mesh &mesh, const Coordinates &at) {
  unsigned __int128 whole = 1;
  for (const std::uint64_t extent : globalShape(tensor))
    whole *= extent;
  std::uint64_t part = 0, budget = 1000;
  for (ShareRuns runs(tensor, mesh, at); const Run *run = runs.next();) {
    check(run->part == part && run->count > 0);
    part += run->count;
    check(run->whole + run->count <= whole);
    if (--budget == 0)
      return;
  }
  check(part == tensor.bytes() / elementBytes(tensor.type()));
}

void checkShare(const ArtifactReader &reader, const Share &share,
                std::size_t size) {
  const Mesh mesh(reader.root());
  const std::uint32_t rank = share.ranks()->Get(share.ranks()->size() - 1);
  check(rank < mesh.ranks());
  const auto own = reader.forRank(rank);
  check(own.ok() && &own->share() == &share);
  checkTensors(*share.state(), share.state_bytes());
  for (const Tensor *tensor : *share.state())
    checkCuts(*tensor, mesh, mesh.coordinatesOf(rank));
  (void)hal::meshOffsets(*own);
  for (const hal::AxisList &axes : hal::channelsOf(reader.root()))
    check(mesh.groupOf(rank, axes).size() <= mesh.ranks());
  check(share.devices()->size() > 0);
  for (const DeviceCode *device : *share.devices()) {
    checkKernels(*device);
    for (const Program *program : *device->programs()) {
      checkProgram(*own, *device, *program, size);
      check(!collectiveTable(reader.root(), *program).empty());
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data,
                                      std::size_t size) {
  const AlignedBytes bytes({reinterpret_cast<const char *>(data), size});
  const auto reader = ArtifactReader::fromBytes(bytes.span(), "fuzz");
  if (!reader.ok()) {
    const std::string &error = reader.message();
    check(error.find("fuzz: offset 0x") == 0 && error.size() < 8192);
    check(error.find('\n') == error.npos && error.find('\x1b') == error.npos);
    return 0;
  }
  for (const Share *share : *reader->root().shares())
    checkShare(*reader, *share, size);
  return 0;
}
