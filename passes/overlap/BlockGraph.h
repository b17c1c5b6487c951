// A block as a scheduler sees it: what computes, what travels, and what of both
// waits for what.
#pragma once
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace tessera::schedule {

/// The start of something that ranks do together, blocking or not.
bool isStart(mlir::Operation *op);
/// A function or a loop whose own block, not that of a loop inside, has some.
bool hasStarts(mlir::Operation *op);

class BlockGraph {
public:
  /// `light` ops take no time where they stand: views, constants, packs. A
  /// `feeder` is a small cluster that only brings into form what travels, or
  /// what came. Both stand right before who needs them.
  enum class Kind { compute, light, feeder, collective };

  explicit BlockGraph(mlir::Block &block);

  mlir::Block &block;
  llvm::SmallVector<mlir::Operation *> ops; ///< without the terminator
  llvm::SmallVector<Kind> kinds;
  /// By SSA, regions included, each once.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>> preds, succs;
  /// What an op waits for behind light ops and feeders: ops that compute, and
  /// collectives.
  llvm::SmallVector<llvm::SmallVector<unsigned, 4>> sources;
  /// The collectives and the loops that hold some, in program order.
  llvm::SmallVector<unsigned> items;

  bool isCollective(unsigned op) const { return kinds[op] == Kind::collective; }
  /// Numbers in `items` of those that the op waits for, directly or not.
  llvm::SmallVector<llvm::BitVector> itemsBefore() const;
  /// The last op that computes of those that the op follows from, -1 if it
  /// follows from none, and collectives between do not count.
  llvm::SmallVector<int64_t> positions() const;
  /// The first op that computes from a result of the op; the number of ops if
  /// none does.
  llvm::SmallVector<unsigned> firstUses() const;
  /// A gather of what was there before the block: of parameters.
  bool isPrefetch(unsigned op, llvm::ArrayRef<int64_t> positions) const;
  /// Bytes that prefetched tensors may take before they are used: as many as
  /// the fullest moment of the block has of those that are in use.
  int64_t prefetchRoom() const;
  /// For each op: before which op a prefetch starts. So early that by the
  /// estimate it is done when it is needed, with as much time again, as far as
  /// there is room.
  llvm::SmallVector<unsigned> prefetchStarts() const;

private:
  void connect();
  void classify();
};

/// Puts the block's ops into an order in which each follows what it waits for
/// and the items of `sequence` follow one another; otherwise that of `wanted`,
/// which may name only some of them. False if there is no such order; the block
/// is then as it was.
bool reorder(const BlockGraph &graph, llvm::ArrayRef<unsigned> sequence,
             llvm::ArrayRef<unsigned> wanted);

/// Puts ops into order one by one, each behind what it waits for.
class Emitter {
public:
  Emitter(const BlockGraph &graph, llvm::ArrayRef<unsigned> sequence);
  virtual ~Emitter() = default;

  /// Appends the op, and before it whatever has to stand there. False if it
  /// waits for itself.
  bool emit(unsigned op);
  bool isEmitted(unsigned op) const { return state[op] == State::done; }

protected:
  /// The op was appended.
  virtual void appended(unsigned op) = 0;
  /// The op needs the collective's result next.
  virtual void needs(unsigned collective) { (void)collective; }

  const BlockGraph &graph;
  llvm::ArrayRef<unsigned> sequence;
  llvm::SmallVector<int64_t> numberInSequence; ///< by op; -1: not in it

private:
  enum class State : uint8_t { open, begun, done };
  llvm::SmallVector<State> state;
};

} // namespace tessera::schedule
