// The pass: locations of state, a program for each function, offsets, and the
// plan's IR.
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/PlainFunction.h"
#include "passes/planning/Planning.h"
#include "passes/planning/ProgramPlanner.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::planning;

namespace tessera {
#define GEN_PASS_DEF_PLANBUFFERS
#include "passes/planning/Passes.h.inc"
} // namespace tessera

static plan::Role toPlan(graph::Role role) {
  switch (role) {
  case graph::Role::parameter:
    return plan::Role::parameter;
  case graph::Role::optimizer:
    return plan::Role::optimizer;
  case graph::Role::counter:
    return plan::Role::counter;
  case graph::Role::cache:
    return plan::Role::cache;
  case graph::Role::recurrent:
    return plan::Role::recurrent;
  }
  llvm_unreachable("all roles are handled");
}

namespace {

SmallVector<StepRange, 1> liveRanges(const Buffer &buffer) {
  SmallVector<StepRange, 1> ranges;
  int64_t first = buffer.first;
  for (const StepRange &idle : buffer.idle) {
    ranges.push_back({first, idle.first - 1});
    first = idle.last + 1;
  }
  ranges.push_back({first, buffer.last});
  return ranges;
}

MemRefType memoryType(RankedTensorType type) {
  return MemRefType::get(type.getShape(), type.getElementType());
}

/// The state tensors of all programs, each with one location.
class StateTable {
public:
  LogicalResult collect(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0;
           i < function.getNumArguments() + function.getNumResults(); ++i)
        if (failed(add(function, i)))
          return failure();
    return success();
  }

  void emit(OpBuilder &builder) const {
    for (const Entry &entry : entries)
      annotate(
          builder.create<plan::StateOp>(
              entry.loc, entry.buffer->name,
              TypeAttr::get(memoryType(entry.buffer->type)),
              plan::RoleAttr::get(builder.getContext(), *entry.buffer->role),
              builder.getI64IntegerAttr(entry.buffer->offset),
              entry.decay ? builder.getUnitAttr() : UnitAttr(),
              entry.buffer->global, entry.buffer->sharding),
          entry);
  }

  llvm::StringMap<Buffer *> byName;

private:
  struct Entry {
    Buffer *buffer;
    Location loc;
    bool decay;
    DictionaryAttr quantized; ///< a graph::QuantizedOrigin; may be null
  };

  static void annotate(plan::StateOp state, const Entry &entry) {
    if (entry.quantized)
      state->setAttr(graph::kQuantizedAttr, entry.quantized);
  }

  // Argument i of the function, or result i - #arguments.
  LogicalResult add(func::FuncOp function, unsigned i) {
    unsigned arguments = function.getNumArguments();
    DictionaryAttr attrs = i < arguments
                               ? function.getArgAttrDict(i)
                               : function.getResultAttrDict(i - arguments);
    auto name =
        attrs ? attrs.getAs<StringAttr>(graph::kStateAttr) : StringAttr();
    if (!name)
      return success();
    auto type = cast<RankedTensorType>(
        i < arguments ? function.getArgumentTypes()[i]
                      : function.getResultTypes()[i - arguments]);
    auto role = attrs.getAs<graph::RoleAttr>(graph::kRoleAttr);
    if (!role)
      return function.emitOpError("state \"")
             << name.getValue() << "\" has no " << graph::kRoleAttr;
    if (Buffer *known = byName.lookup(name.getValue())) {
      if (known->type != type)
        return function.emitOpError("state \"")
               << name.getValue() << "\" is " << type << " here and "
               << known->type << " elsewhere";
      if (known->sharding !=
              attrs.getAs<dist::ShardingAttr>(dist::kShardingAttr) ||
          known->global !=
              attrs.getAs<DenseI64ArrayAttr>(dist::kGlobalShapeAttr))
        return function.emitOpError("state \"")
               << name.getValue() << "\" is sharded differently elsewhere";
      return success();
    }
    Buffer &buffer = storage.emplace_back();
    buffer.space = plan::Space::state;
    buffer.name = name;
    buffer.type = type;
    buffer.global = attrs.getAs<DenseI64ArrayAttr>(dist::kGlobalShapeAttr);
    buffer.sharding = attrs.getAs<dist::ShardingAttr>(dist::kShardingAttr);
    buffer.role = toPlan(role.getValue());
    buffer.reserved = true;
    buffer.bytes = plan::byteSize(type);
    buffer.offset = size;
    size += llvm::alignTo(buffer.bytes, plan::kAlignment);
    byName[name.getValue()] = &buffer;
    entries.push_back({&buffer, function.getLoc(),
                       attrs.contains(graph::kDecayAttr),
                       attrs.getAs<DictionaryAttr>(graph::kQuantizedAttr)});
    return success();
  }

  std::list<Buffer> storage;
  std::vector<Entry> entries;
  int64_t size = 0;
};

/// Writes a planned function as a plan.program.
class ProgramEmitter {
public:
  ProgramEmitter(OpBuilder &builder, func::FuncOp function)
      : b(builder), function(function) {}

  void emit(ProgramPlanner &planner, int64_t arena) {
    auto flops = function->getAttrOfType<IntegerAttr>(graph::kFlopsAttr);
    auto program = b.create<plan::ProgramOp>(
        function.getLoc(), function.getSymName(), arena, planner.ioBytes,
        flops ? flops.getInt() : 0);
    top = &program.getBody().emplaceBlock();
    b.setInsertionPointToStart(top);
    for (const Buffer &buffer : planner.buffers)
      if (buffer.space == plan::Space::io)
        declare(&buffer);
    emit(planner.steps);
  }

private:
  // The plan.buffer of a buffer: declared at the top when it is first needed.
  Value declare(const Buffer *buffer) {
    Value &memory = memories[buffer];
    if (memory)
      return memory;
    OpBuilder::InsertionGuard guard(b);
    if (lastDeclared)
      b.setInsertionPointAfter(lastDeclared);
    else
      b.setInsertionPointToStart(top);
    DenseI64ArrayAttr lives;
    if (buffer->space == plan::Space::arena) {
      SmallVector<int64_t, 2> steps;
      for (const StepRange &range : liveRanges(*buffer))
        steps.append({range.first, range.last});
      lives = b.getDenseI64ArrayAttr(steps);
    }
    auto role = buffer->role
                    ? plan::RoleAttr::get(b.getContext(), *buffer->role)
                    : plan::RoleAttr();
    auto op = b.create<plan::BufferOp>(
        function.getLoc(), memoryType(buffer->type),
        plan::SpaceAttr::get(b.getContext(), buffer->space),
        b.getI64IntegerAttr(buffer->offset), buffer->name, role, lives,
        buffer->space == plan::Space::io ? buffer->global : nullptr,
        buffer->space == plan::Space::io ? buffer->sharding : nullptr);
    lastDeclared = op;
    return memory = op;
  }

  Value address(const Typed &operand, Location loc) {
    const Place &place = operand.place;
    Value memory = declare(place.buffer);
    if (place.offset == 0 && place.advances.empty() &&
        operand.type == place.buffer->type)
      return memory;
    if (place.advances.empty())
      return b.create<plan::ViewOp>(loc, memoryType(operand.type), memory,
                                    place.offset, Value(), IntegerAttr());
    // One view for each loop, the outermost first: all but the last keep the
    // rest of the range.
    int64_t left = place.buffer->bytes - place.offset, offset = place.offset;
    for (auto [i, advance] : llvm::enumerate(place.advances)) {
      auto [loop, stride] = advance;
      left -= stride * (static_cast<int64_t>(loop.getTrip()) - 1);
      MemRefType type = i + 1 == place.advances.size()
                            ? memoryType(operand.type)
                            : MemRefType::get({left}, b.getI8Type());
      memory = b.create<plan::ViewOp>(loc, type, memory, offset,
                                      inductions.lookup(loop),
                                      b.getI64IntegerAttr(stride));
      offset = 0;
    }
    return memory;
  }

  plan::CollectiveOp collective(const Step &step, ArrayRef<Value> memories) {
    CollectiveSpec spec = *specOf(step.source); // checked by the planner
    MLIRContext *context = b.getContext();
    auto sizes = [&](const std::optional<SmallVector<int64_t>> &list) {
      return list ? b.getDenseI64ArrayAttr(*list) : DenseI64ArrayAttr();
    };
    bool isStarted =
        isa<dist::PendingType>(step.source->getResult(0).getType());
    return b.create<plan::CollectiveOp>(
        step.loc,
        isStarted ? TypeRange(plan::TicketType::get(context)) : TypeRange(),
        plan::CollectiveKindAttr::get(context, spec.kind),
        spec.reduction ? plan::ReductionAttr::get(context, *spec.reduction)
                       : plan::ReductionAttr(),
        memories.front(), memories.back(),
        memories.size() == 3 ? memories[1] : Value(),
        b.getStrArrayAttr(spec.axes), sizes(spec.counts), sizes(spec.targets));
  }

  void emit(ArrayRef<Step> steps) {
    for (const Step &step : steps) {
      Operation *emitted = emit(step);
      if (auto layer = step.source->getAttr(graph::kLayerAttr))
        emitted->setAttr(graph::kLayerAttr, layer);
    }
  }

  Operation *emit(const Step &step) {
    SmallVector<Value> memories;
    if (step.kind != Step::wait)
      for (const Typed &operand : step.operands)
        memories.push_back(address(operand, step.loc));
    switch (step.kind) {
    case Step::launch: {
      auto launch = cast<tile::LaunchOp>(step.source);
      return b.create<plan::LaunchOp>(step.loc, launch.getKernelAttr(),
                                      memories, launch.getBlocksAttr(),
                                      launch.getSizesAttr());
    }
    case Step::copy:
      return b.create<plan::CopyOp>(step.loc, memories[0], memories[1]);
    case Step::fill:
      return b.create<plan::FillOp>(step.loc, memories[0],
                                    b.getI8IntegerAttr(0));
    case Step::collective: {
      plan::CollectiveOp made = collective(step, memories);
      tickets[step.source] = made.getTicket();
      return made;
    }
    case Step::wait:
      return b.create<plan::WaitOp>(
          step.loc, tickets.lookup(step.source->getOperand(0).getDefiningOp()));
    case Step::loop:
      return emitLoop(step, memories);
    }
    llvm_unreachable("all kinds are handled");
  }

  // The memory is that of a counted loop's trip count.
  Operation *emitLoop(const Step &step, ArrayRef<Value> memories) {
    auto source = cast<graph::LoopOp>(step.source);
    auto loop =
        b.create<plan::LoopOp>(step.loc, source.getTrip(),
                               memories.empty() ? Value() : memories.front());
    inductions[source] = loop.getInduction();
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&loop.getBody().front());
    emit(step.body);
    return loop;
  }

  OpBuilder &b;
  func::FuncOp function;
  llvm::DenseMap<const Buffer *, Value> memories;
  llvm::DenseMap<Operation *, Value> inductions;
  llvm::DenseMap<Operation *, Value> tickets; // of collectives of dist
  Block *top = nullptr; // of the program: where buffers are declared
  Operation *lastDeclared = nullptr;
};

int64_t placeInArena(ProgramPlanner &planner) {
  SmallVector<ArenaRequest> requests;
  SmallVector<Buffer *> owners;
  for (Buffer &buffer : planner.buffers)
    if (buffer.space == plan::Space::arena && buffer.first >= 0) {
      requests.push_back({buffer.bytes, liveRanges(buffer)});
      owners.push_back(&buffer);
    }
  int64_t arena = assignOffsets(requests);
  for (auto [request, owner] : llvm::zip(requests, owners))
    owner->offset = request.offset;
  return arena;
}

struct PlanBuffers : tessera::impl::PlanBuffersBase<PlanBuffers> {
  using PlanBuffersBase::PlanBuffersBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(requirePlainFunction(function, [](Type type) {
            return isa<dist::PendingType>(type);
          })))
        return signalPassFailure();
    StateTable state;
    if (failed(state.collect(module)))
      return signalPassFailure();
    llvm::StringMap<tile::KernelOp> kernels;
    module.walk([&](tile::KernelOp kernel) {
      kernels.try_emplace(kernel.getSymName(), kernel);
    });

    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    OpBuilder builder(module.getBodyRegion());
    // Meshes stay first: each collective looks its own up by name.
    for (auto mesh : module.getOps<dist::MeshOp>())
      builder.setInsertionPointAfter(mesh);
    state.emit(builder);
    for (func::FuncOp function : functions) {
      ProgramPlanner planner(function, state.byName, kernels);
      if (failed(planner.run()))
        return signalPassFailure();
      int64_t arena = placeInArena(planner);
      builder.setInsertionPoint(function);
      ProgramEmitter(builder, function).emit(planner, arena);
      function.erase();
    }
  }
};

} // namespace
