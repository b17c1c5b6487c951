#include "compiler/artifact/BufferUses.h"
#include "dialects/graph/GraphOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace tessera;
using artifact::BufferUse;

static plan::BufferOp rootOf(Value memory) {
  while (auto view = memory.getDefiningOp<plan::ViewOp>())
    memory = view.getSource();
  return memory.getDefiningOp<plan::BufferOp>();
}

static int64_t elementsOf(Value memory) {
  return cast<MemRefType>(memory.getType()).getNumElements();
}

/// State that an optimizer writes.
static bool isTrained(plan::BufferOp buffer) {
  return buffer.getSpace() == plan::Space::state && buffer.getRole() &&
         (*buffer.getRole() == plan::Role::parameter ||
          *buffer.getRole() == plan::Role::optimizer);
}

static bool isBackward(Operation *step) {
  auto layer = step->getAttrOfType<graph::LayerAttr>(graph::kLayerAttr);
  return layer && !layer.isForward();
}

namespace {

using Buffers = llvm::SetVector<plan::BufferOp>;

/// One step, or one instance of a launch.
struct Touch {
  Operation *step;
  Buffers reads, writes;
};

class Uses {
public:
  Uses(plan::ProgramOp program,
       llvm::function_ref<tile::KernelOp(StringRef)> kernel);
  BufferUses take();

private:
  void addLaunch(plan::LaunchOp launch, tile::KernelOp kernel);
  void add(Operation *step, ArrayRef<Value> reads, ArrayRef<Value> writes);
  void findWeights();
  bool copiesWeights(const Touch &touch) const;
  void findGradients();
  bool addGradients(const Touch &touch);
  void findActivations();
  void findCommunication();
  void set(plan::BufferOp buffer, BufferUse use) {
    if (buffer.getSpace() == plan::Space::arena)
      uses.try_emplace(buffer, use);
  }
  bool isA(plan::BufferOp buffer, BufferUse use) const {
    auto found = uses.find(buffer);
    return found != uses.end() && found->second == use;
  }

  SmallVector<Touch> touches; // in program order
  /// By updates of trained state, with as many elements.
  Buffers updatesRead;
  llvm::MapVector<Operation *, SmallVector<const Touch *>> writers, readers;
  BufferUses uses;
};

} // namespace

Uses::Uses(plan::ProgramOp program,
           llvm::function_ref<tile::KernelOp(StringRef)> kernel) {
  program.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto launch = dyn_cast<plan::LaunchOp>(op))
      addLaunch(launch, kernel(launch.getKernel()));
    else if (auto copy = dyn_cast<plan::CopyOp>(op))
      add(op, {copy.getFrom()}, {copy.getTo()});
    else if (auto fill = dyn_cast<plan::FillOp>(op))
      add(op, {}, {fill.getTo()});
    else if (auto one = dyn_cast<plan::CollectiveOp>(op))
      add(op, {one.getFrom()}, {one.getTo()});
  });
  for (const Touch &touch : touches) {
    for (plan::BufferOp buffer : touch.reads)
      readers[buffer].push_back(&touch);
    for (plan::BufferOp buffer : touch.writes)
      writers[buffer].push_back(&touch);
  }
}

void Uses::add(Operation *step, ArrayRef<Value> reads, ArrayRef<Value> writes) {
  Touch touch{step, {}, {}};
  for (Value memory : reads)
    touch.reads.insert(rootOf(memory));
  for (Value memory : writes)
    touch.writes.insert(rootOf(memory));
  touches.push_back(std::move(touch));
}

void Uses::addLaunch(plan::LaunchOp launch, tile::KernelOp kernel) {
  size_t buffers = kernel.getAccess().size();
  for (size_t i = 0, e = launch.getBlocks().size(); i < e; ++i) {
    SmallVector<Value> reads, writes;
    for (auto [k, memory] :
         llvm::enumerate(launch.getBuffers().slice(i * buffers, buffers))) {
      tile::Access access = kernel.getBufferAccess(k);
      if (access != tile::Access::write)
        reads.push_back(memory);
      if (access != tile::Access::read)
        writes.push_back(memory);
    }
    add(launch, reads, writes);
    for (Value written : writes)
      for (Value read : reads)
        if (isTrained(rootOf(written)) &&
            elementsOf(read) == elementsOf(written))
          updatesRead.insert(rootOf(read));
  }
}

// Everything that it reads is parameters or copies of them.
bool Uses::copiesWeights(const Touch &touch) const {
  return !touch.reads.empty() &&
         llvm::all_of(touch.reads, [&](plan::BufferOp buffer) {
           return buffer.getSpace() == plan::Space::state
                      ? buffer.getRole() == plan::Role::parameter
                      : isA(buffer, BufferUse::weights) ||
                            isA(buffer, BufferUse::gathered);
         });
}

void Uses::findWeights() {
  size_t known;
  do {
    known = uses.size();
    for (auto &[op, list] : writers) {
      auto buffer = cast<plan::BufferOp>(op);
      if (uses.count(buffer) ||
          !llvm::all_of(list,
                        [&](const Touch *touch) {
                          return isa<plan::FillOp>(touch->step) ||
                                 copiesWeights(*touch);
                        }) ||
          llvm::all_of(list, [](const Touch *touch) {
            return isa<plan::FillOp>(touch->step);
          }))
        continue;
      bool meets = llvm::any_of(list, [](const Touch *touch) {
        return isa<plan::CollectiveOp>(touch->step);
      });
      set(buffer, meets ? BufferUse::gathered : BufferUse::weights);
    }
  } while (uses.size() != known);
}

// Whether the step made more buffers known as gradients.
bool Uses::addGradients(const Touch &touch) {
  size_t known = uses.size();
  bool isMoved = isa<plan::CopyOp, plan::CollectiveOp>(touch.step);
  for (plan::BufferOp written : touch.writes)
    for (plan::BufferOp read : touch.reads)
      if (isA(written, BufferUse::gradients) &&
          (isMoved ||
           read.getMemory().getType() == written.getMemory().getType()))
        set(read, BufferUse::gradients);
  return uses.size() != known;
}

void Uses::findGradients() {
  for (plan::BufferOp buffer : updatesRead)
    set(buffer, BufferUse::gradients);
  bool changed = true;
  while (changed) {
    changed = false;
    for (const Touch &touch : llvm::reverse(touches))
      changed |= addGradients(touch);
  }
}

void Uses::findActivations() {
  auto runsBackward = [&](const Touch *touch) {
    return isBackward(touch->step) ||
           llvm::any_of(touch->writes, [&](plan::BufferOp buffer) {
             return isA(buffer, BufferUse::gradients);
           });
  };
  for (auto &[op, list] : writers)
    if (!llvm::all_of(list, runsBackward) &&
        llvm::any_of(readers.lookup(op), runsBackward))
      set(cast<plan::BufferOp>(op), BufferUse::activations);
}

void Uses::findCommunication() {
  for (const Touch &touch : touches)
    if (isa<plan::CollectiveOp>(touch.step))
      for (const Buffers &buffers : {touch.reads, touch.writes})
        for (plan::BufferOp buffer : buffers)
          set(buffer, BufferUse::communication);
}

// Earlier findings take precedence.
BufferUses Uses::take() {
  findWeights();
  findGradients();
  findActivations();
  findCommunication();
  return std::move(uses);
}

BufferUses
tessera::bufferUses(plan::ProgramOp program,
                    llvm::function_ref<tile::KernelOp(StringRef)> kernel) {
  return Uses(program, kernel).take();
}
