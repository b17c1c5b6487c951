// The locations of tensors while a program is planned, and its steps.
#pragma once
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/plan/PlanOps.h"
#include "dialects/tile/TileOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/planning/Planning.h"
#include "llvm/ADT/DenseMap.h"
#include <list>
#include <optional>
#include <vector>

namespace tessera::planning {

/// A range of bytes that some values share.
struct Buffer {
  plan::Space space = plan::Space::arena;
  int64_t bytes = 0;
  int64_t offset = 0;    ///< known early for state and io, last for the arena
  mlir::StringAttr name; ///< state and io
  std::optional<plan::Role> role;
  mlir::RankedTensorType type; ///< of the first tensor placed here
  /// For state and io that are shards: the global shape and the sharding.
  mlir::DenseI64ArrayAttr global = {};
  dist::ShardingAttr sharding = {};
  size_t depth = 0; ///< loops around the block that made it
  bool reserved =
      false; ///< state, io, loop-carried: only its own value may overwrite it
  int64_t first = -1, last = -1; ///< live range in steps
  /// Steps in between, ascending, in which its contents are not needed: the
  /// next access writes all of it.
  llvm::SmallVector<StepRange, 1> idle = {};
  int64_t lastRead = -1; ///< of all tensors placed here so far (Order)
};

/// The location of a tensor: part of a buffer, which may advance with loops.
struct Place {
  Buffer *buffer = nullptr;
  int64_t offset = 0;
  llvm::SmallVector<std::pair<graph::LoopOp, int64_t>, 1>
      advances; ///< (loop, stride in bytes)
  bool operator==(const Place &other) const {
    return buffer == other.buffer && offset == other.offset &&
           advances == other.advances;
  }
};

/// A location seen as a tensor of some type.
struct Typed {
  Place place;
  mlir::RankedTensorType type;
};

/// One step of the program.
struct Step {
  enum Kind { launch, loop, copy, fill, collective, wait } kind;
  mlir::Location loc;
  mlir::Operation *source = nullptr; ///< tile.launch, graph.loop, an op of dist
  /// launch: all buffers; copy: from, to; fill: to; collective: from, to, or
  /// the one buffer of an in-place collective; wait: those of the collective
  llvm::SmallVector<Typed> operands;
  std::vector<Step> body; ///< loop
  int64_t begin = 0,
          end = 0; ///< numbers in program order; a loop takes one for each end
};

/// Positions of operations in the source function: a loop spans [begin, end].
class Order {
public:
  explicit Order(mlir::func::FuncOp function);
  int64_t begin(mlir::Operation *op) const {
    return positions.lookup(op).first;
  }
  int64_t end(mlir::Operation *op) const { return positions.lookup(op).second; }
  /// The last read of the value or of a view of it (liveness): a position at
  /// the level of the value's own block. A value that leaves its block is read
  /// at the very end.
  int64_t lastRead(mlir::Value value) const;

private:
  llvm::DenseMap<mlir::Operation *, std::pair<int64_t, int64_t>> positions;
};

/// graph.reshape, a contiguous graph.slice or graph.dynamic_slice: the result
/// is part of the input.
bool isView(mlir::Operation *op);

/// Bytes from the input's start to the result's, for a contiguous slice;
/// nullopt if it has gaps.
std::optional<int64_t> contiguousOffset(graph::SliceOp slice);

/// The tensor of the value, now or after the wait for it.
mlir::RankedTensorType typeOf(mlir::Value value);

/// The attributes of plan.collective for an op of dist: its elements and the
/// members that they go to.
struct CollectiveSpec {
  plan::CollectiveKind kind;
  std::optional<plan::Reduction> reduction = {};
  llvm::SmallVector<llvm::StringRef> axes = {};
  std::optional<llvm::SmallVector<int64_t>> counts = {}, targets = {};
};
/// Fails, with an error at the op, if it runs along another dimension than the
/// first, or along a part of an axis.
mlir::FailureOr<CollectiveSpec> specOf(mlir::Operation *collective);

/// Plans one function. `state` maps checkpoint names to their buffers,
/// `kernels` names to any target's version of a kernel (their buffers are
/// alike).
class ProgramPlanner {
public:
  ProgramPlanner(mlir::func::FuncOp function,
                 const llvm::StringMap<Buffer *> &state,
                 const llvm::StringMap<tile::KernelOp> &kernels);
  mlir::LogicalResult run();

  std::list<Buffer> buffers; ///< arena and io; stable addresses
  std::vector<Step> steps;
  int64_t ioBytes = 0;

private:
  // Locations.
  Buffer *newBuffer(mlir::RankedTensorType type, size_t depth);
  Buffer *newIo(llvm::StringRef name, plan::Role role,
                mlir::RankedTensorType type, mlir::DictionaryAttr attrs);
  void put(mlir::Value value, const Place &place);
  mlir::LogicalResult bindArguments();
  void wantReturns();
  void want(mlir::Value value, Buffer *buffer);
  bool mayOverwrite(Buffer *buffer, mlir::Value output, mlir::Operation *at,
                    mlir::Value through) const;
  /// How many operands of the op are in the buffer.
  unsigned countOperands(mlir::Operation *op, Buffer *buffer) const;
  std::optional<Place> placeOver(mlir::Operation *at, mlir::Value input,
                                 mlir::Value output) const;
  Place placeFresh(mlir::Value output, size_t depth);

  // Planning of steps, in program order.
  mlir::LogicalResult plan(mlir::Block &block, size_t depth,
                           std::vector<Step> &out);
  mlir::LogicalResult planView(mlir::Operation *op);
  mlir::LogicalResult planInstance(tile::LaunchOp launch, tile::KernelOp kernel,
                                   int64_t instance, size_t depth,
                                   std::vector<Step> &out, Step &step);
  mlir::LogicalResult planLaunch(tile::LaunchOp launch, size_t depth,
                                 std::vector<Step> &out);
  mlir::LogicalResult planCollective(mlir::Operation *op, size_t depth,
                                     std::vector<Step> &out);
  mlir::LogicalResult planWait(dist::WaitOp wait, std::vector<Step> &out);
  // Packs and stacks: tensors are written there directly.
  void wantParts();
  void wantPart(mlir::Value input, mlir::Operation *whole, int64_t offset);
  Buffer *bufferOf(mlir::Operation *whole, size_t depth);
  mlir::LogicalResult planStack(graph::ConcatOp stack, size_t depth,
                                std::vector<Step> &out);
  mlir::LogicalResult planPack(dist::PackOp pack, size_t depth,
                               std::vector<Step> &out);
  mlir::LogicalResult planUnpack(dist::UnpackOp unpack, size_t depth,
                                 std::vector<Step> &out);
  mlir::LogicalResult planLoop(graph::LoopOp loop, size_t depth,
                               std::vector<Step> &out);
  void wantSteps(mlir::Value yielded, mlir::BlockArgument carried,
                 Buffer *buffer);
  mlir::LogicalResult planUpdate(graph::DynamicUpdateOp update, size_t depth,
                                 std::vector<Step> &out);
  mlir::LogicalResult finishBody(graph::LoopOp loop,
                                 llvm::ArrayRef<Buffer *> carried, size_t depth,
                                 std::vector<Step> &out);
  mlir::LogicalResult finishReturns(mlir::func::ReturnOp ret,
                                    std::vector<Step> &out);
  mlir::FailureOr<Typed> read(mlir::Value value, mlir::Operation *user,
                              size_t depth, std::vector<Step> &out);
  mlir::LogicalResult initialize(mlir::Value from, const Place &to,
                                 mlir::Operation *at, std::vector<Step> &out);

  // Live ranges, once all steps are known.
  void number(std::vector<Step> &list, int64_t &position);
  void touch(std::vector<Step> &list,
             llvm::SmallVectorImpl<const Step *> &loops);
  void findIdle(const std::vector<Step> &list);
  bool overwrites(const Step &step, size_t operand) const;

  mlir::func::FuncOp function;
  const llvm::StringMap<Buffer *> &state;
  const llvm::StringMap<tile::KernelOp> &kernels;
  /// Of the last op that was asked about; its operands are placed by then.
  struct Counted {
    mlir::Operation *op = nullptr;
    llvm::DenseMap<Buffer *, unsigned> byBuffer;
  };
  mutable Counted counted;
  Order order;
  llvm::DenseMap<mlir::Value, Place> locations;
  /// Buffers of started collectives (from and to), by the value that is waited
  /// for.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Typed>> started;
  llvm::DenseMap<mlir::Value, Buffer *> wanted;
  /// Values that are written in a pack or a stack, and their offsets in bytes.
  llvm::DenseMap<mlir::Value, std::pair<mlir::Operation *, int64_t>> parts;
  llvm::DenseMap<mlir::Operation *, Buffer *> wholes; ///< packs and stacks
};

} // namespace tessera::planning
