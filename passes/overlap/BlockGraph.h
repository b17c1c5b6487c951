// The dependence graph of a block for scheduling: computation, collectives, and
// the dependences between them.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera::overlap {

/// Whether the op is a collective, or the start of one.
bool isStart(mlir::Operation *op);
/// Whether the block of a function or loop has collectives, without those of
/// loops inside.
bool hasStarts(mlir::Operation *op);

class BlockGraph {
public:
  /// `light` ops take no time: views, constants, packs. A `feeder` is a small
  /// cluster that only converts or copies the operand or result of a
  /// collective. Both are placed right before their users.
  enum class Kind { compute, light, feeder, collective };

  explicit BlockGraph(mlir::Block &block);

  mlir::Block &block;
  llvm::SmallVector<mlir::Operation *> ops; ///< without the terminator
  llvm::SmallVector<Kind> kinds;
  /// The ops that an op depends on by SSA, regions included, each once; of a
  /// collective that a loop yields also the readers of what it replaces.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>> preds, succs;
  /// The ops that an op waits for through light ops and feeders: computation
  /// and collectives.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>> sources;
  /// The collectives, and the loops that contain some, in program order.
  llvm::SmallVector<unsigned> items;

  bool isCollective(unsigned op) const { return kinds[op] == Kind::collective; }
  /// The items that the op waits for, directly or not, as indices of `items`.
  llvm::SmallVector<llvm::BitVector> itemsBefore() const;
  /// The last computing op that the op depends on, not through collectives; -1
  /// if there is none.
  llvm::SmallVector<int64_t> positions() const;
  /// The first computing op that reads a result of the op; the number of ops if
  /// there is none.
  llvm::SmallVector<unsigned> firstUses() const;
  /// Whether the op gathers a value from before the block: a parameter.
  bool isPrefetch(unsigned op, llvm::ArrayRef<int64_t> positions) const;
  /// Bytes that prefetched tensors may take before they are used: the largest
  /// size of gathered tensors that are in use at one time.
  int64_t prefetchRoom() const;
  /// For each op: before which op a prefetch starts. Early enough to finish in
  /// time by estimate, with a margin as long as the gather, within the room.
  llvm::SmallVector<unsigned> prefetchStarts() const;

private:
  void connect();
  void
  connectCarried(mlir::Operation *op,
                 const llvm::DenseMap<mlir::Operation *, unsigned> &numbers,
                 llvm::SmallSetVector<unsigned, 8> &found);
  void classify();
};

/// Reorders the block: each op follows the ops that it waits for, the items of
/// `sequence` follow one another, and otherwise the order is that of `wanted`,
/// which may name only some ops. False, and the block unchanged, if that is
/// impossible.
bool reorder(const BlockGraph &graph, llvm::ArrayRef<unsigned> sequence,
             llvm::ArrayRef<unsigned> wanted);

/// Appends ops to an order one by one, each after the ops that it waits for.
class Emitter {
public:
  Emitter(const BlockGraph &graph, llvm::ArrayRef<unsigned> sequence);
  virtual ~Emitter() = default;

  /// Appends the op, after the ops that must precede it. False if it waits for
  /// itself.
  bool emit(unsigned op);
  bool isEmitted(unsigned op) const { return state[op] == State::done; }

protected:
  /// Whether the op was appended.
  virtual void appended(unsigned op) = 0;
  /// Whether the op needs the collective's result next.
  virtual void needs(unsigned collective) { (void)collective; }

  const BlockGraph &graph;
  llvm::ArrayRef<unsigned> sequence;
  llvm::SmallVector<int64_t> numberInSequence; ///< by op; -1: not in it

private:
  enum class State : uint8_t { open, begun, done };
  llvm::SmallVector<State> state;
};

} // namespace tessera::overlap
