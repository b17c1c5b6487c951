// Reductions down columns on a GPU, in two launches: the blocks of the first
// have some columns and a run of rows each; the second combines the partial
// results of all runs in order. Blocks with all rows of their columns would be
// too few for a GPU.
#include "passes/kernels/gpu/GpuTiles.h"
#include "passes/kernels/gpu/InFlight.h"
#include "passes/kernels/reduction/Reductions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;
using namespace tessera::gpu;

// Columns of a block: one of each thread. These kernels wait for memory, so
// they need many blocks and loads rather than wide ones.
static constexpr int64_t kMaxMicropanel = 128;
// Rows, or partial results, whose loads are in flight at once.
static constexpr int64_t kRowsInFlight = 16;
// Rows of a block, about; fewer than two such runs make no partial results.
static constexpr int64_t kRun = 64;

namespace {

/// Shared by both launches: blocks of columns of the last kept dimension, for
/// each index of the other kept ones, over runs of the reduced dimensions.
struct ColumnPlan {
  const ExprPiece &piece;
  unsigned firstReduced, last; ///< dimensions; `last` is the last kept one
  int64_t outer = 1, columns, micropanel, rows = 1, run, runs;
  SmallVector<unsigned> reductions; ///< nodes

  explicit ColumnPlan(const ExprPiece &piece);
  int64_t micropanels() const { return partsOf(columns, micropanel); }
  /// Sets the kept dimensions of a level and its tile from a block's number.
  void enter(EmitScope &level, const TileBuilder &e, Value micropanel,
             Value outerIndex) const;
  /// Index of a level's tile in the partial results of run `number`.
  Value placeOf(const TileBuilder &e, Value number, Value outerIndex,
                Value column) const;
};

/// Either launch of the two.
struct ColumnLaunch {
  LaunchSpec spec;
  SmallVector<Value> inputs;
  SmallVector<Type> outputs;
  SmallVector<std::optional<unsigned>> ofArgument; ///< buffers

  /// Buffers of the arguments that the nodes marked in `used` load.
  void takeArguments(ClusterOp cluster, const ExprPiece &piece,
                     const llvm::SmallBitVector &used);
  SmallVector<Value> argumentBuffers(tile::KernelOp kernel) const {
    SmallVector<Value> buffers;
    for (std::optional<unsigned> i : ofArgument)
      buffers.push_back(i ? Value(kernel.getBuffers()[*i]) : Value());
    return buffers;
  }
};

class ColumnTiler {
public:
  ColumnTiler(ClusterOp cluster, const ClusterExpression &expression,
              TilingContext &context)
      : cluster(cluster), expression(expression), context(context),
        plan(expression.pieces.front()) {}
  llvm::Expected<SmallVector<Value>> run();

private:
  llvm::Expected<SmallVector<Value>> launchPartial();
  llvm::Expected<SmallVector<Value>> launchFinal(ValueRange partials);
  void emitPartial(tile::KernelOp kernel, const ColumnLaunch &launch,
                   unsigned firstResult, OpBuilder &b);
  void emitFinal(tile::KernelOp kernel, const ColumnLaunch &launch,
                 ArrayRef<unsigned> partials, ArrayRef<unsigned> results,
                 OpBuilder &b);
  Type heldOf(unsigned reduction) const {
    return heldElement(plan.piece.nodes[reduction].element);
  }
  Value neutralTile(EmitScope &scope, unsigned reduction) const;

  ClusterOp cluster;
  const ClusterExpression &expression;
  TilingContext &context;
  ColumnPlan plan;
};

} // namespace

//===--- plan -------------------------------------------------------------===//

ColumnPlan::ColumnPlan(const ExprPiece &piece)
    : piece(piece), firstReduced(piece.rank() - piece.groups.back()),
      last(firstReduced - 1), columns(piece.sizes[last]) {
  for (unsigned dim = 0; dim < last; ++dim)
    outer *= piece.sizes[dim];
  for (unsigned dim = firstReduced; dim < piece.rank(); ++dim)
    rows *= piece.sizes[dim];
  micropanel = std::min<int64_t>(kMaxMicropanel, llvm::PowerOf2Ceil(columns));
  run = std::max<int64_t>(kRun, partsOf(rows, 256)); // the second launch is one
  runs = partsOf(rows, run);                         // block a micropanel
  for (auto [i, node] : llvm::enumerate(piece.nodes))
    if (node.kind == ExprNode::reduce)
      reductions.push_back(i);
}

void ColumnPlan::enter(EmitScope &level, const TileBuilder &e, Value number,
                       Value outerIndex) const {
  for (unsigned dim = last; dim-- > 0;) {
    level.setIndex(dim, e.rem(outerIndex, piece.sizes[dim]));
    outerIndex = e.div(outerIndex, piece.sizes[dim]);
  }
  Value column = e.mul(number, micropanel);
  level.setIndex(last, column);
  if (columns == 1)
    return;
  Value bound;
  if (columns % micropanel)
    bound = e.sub(e.index(columns), column);
  level.setTile({{last, micropanel}}, bound);
}

Value ColumnPlan::placeOf(const TileBuilder &e, Value number, Value outerIndex,
                          Value column) const {
  Value row = e.add(e.mul(number, outer), outerIndex);
  return e.add(e.mul(row, columns), column);
}

//===--- launches ---------------------------------------------------------===//

void ColumnLaunch::takeArguments(ClusterOp cluster, const ExprPiece &piece,
                                 const llvm::SmallBitVector &used) {
  ofArgument.resize(cluster.getInputs().size());
  for (auto [i, node] : llvm::enumerate(piece.nodes)) {
    if (!used[i] || node.kind != ExprNode::load || ofArgument[node.argument])
      continue;
    ofArgument[node.argument] = spec.buffers.size();
    Value input = cluster.getInputs()[node.argument];
    spec.buffers.push_back(bufferType(input.getType()));
    spec.access.push_back(tile::Access::read);
    inputs.push_back(input);
  }
}

// Nodes that `roots` need; operands of reductions are not visited.
static llvm::SmallBitVector neededFor(const ExprPiece &piece,
                                      ArrayRef<unsigned> roots) {
  llvm::SmallBitVector needed(piece.nodes.size());
  SmallVector<unsigned> work(roots);
  while (!work.empty()) {
    unsigned i = work.pop_back_val();
    if (needed[i])
      continue;
    needed.set(i);
    if (piece.nodes[i].kind != ExprNode::reduce)
      llvm::append_range(work, piece.nodes[i].operands);
  }
  return needed;
}

Value ColumnTiler::neutralTile(EmitScope &scope, unsigned reduction) const {
  Type held = heldOf(reduction);
  Value scalar = neutral(scope.builder, scope.loc(),
                         kindOf(plan.piece.nodes[reduction]), held);
  if (scope.isScalar())
    return scalar;
  return scope.builder.create<tile::BroadcastOp>(
      scope.loc(), scope.tileType(held), scalar, ArrayRef<int64_t>());
}

// A block: the runs fastest, so that neighbours read neighbouring rows.
void ColumnTiler::emitPartial(tile::KernelOp kernel, const ColumnLaunch &launch,
                              unsigned firstResult, OpBuilder &b) {
  Location loc = kernel.getLoc();
  EmitTarget target{plan.piece, launch.argumentBuffers(kernel), loc};
  TileBuilder e{b, loc};
  SmallVector<Value> at = e.unravel(
      kernel.getBlockNumber(), {plan.runs, plan.micropanels(), plan.outer});
  EmitScope level(target, b);
  plan.enter(level, e, at[1], at[2]);
  Value begin = e.mul(at[0], plan.run);
  Value end = e.add(begin, plan.run);
  if (plan.rows % plan.run)
    end = e.min(end, e.index(plan.rows));
  level.builder = b;
  SmallVector<Value> sums;
  for (unsigned node : plan.reductions)
    sums.push_back(neutralTile(level, node));
  auto loop = b.create<scf::ForOp>(loc, begin, end, e.index(1), sums);
  loop->setAttr(kUnrollByAttr, b.getI64IntegerAttr(kRowsInFlight));
  level.builder.setInsertionPoint(loop);
  EmitScope row(level, OpBuilder::atBlockEnd(loop.getBody()));
  TileBuilder inner{row.builder, loc};
  Value rest = loop.getInductionVar();
  for (unsigned dim = plan.piece.rank(); dim-- > plan.firstReduced;) {
    bool isLast = dim == plan.firstReduced;
    row.setIndex(dim, isLast ? rest : inner.rem(rest, plan.piece.sizes[dim]));
    if (!isLast)
      rest = inner.div(rest, plan.piece.sizes[dim]);
  }
  row.copyTile(level);
  SmallVector<Value> next;
  for (auto [i, node] : llvm::enumerate(plan.reductions)) {
    const ExprNode &reduction = plan.piece.nodes[node];
    Value operand = row.emitTile(reduction.operands[0]);
    next.push_back(combine(row.builder, loc, kindOf(reduction),
                           loop.getRegionIterArgs()[i], operand));
  }
  row.builder.create<scf::YieldOp>(loc, next);
  b.setInsertionPointAfter(loop);
  Value place = plan.placeOf(e, at[0], at[2], e.mul(at[1], plan.micropanel));
  for (auto [i, sum] : llvm::enumerate(loop.getResults())) {
    Value buffer = kernel.getBuffers()[firstResult + i];
    if (level.isScalar())
      b.create<memref::StoreOp>(loc, sum, buffer, place);
    else
      b.create<tile::StoreOp>(
          loc, sum, buffer, ValueRange(place),
          plan.columns % plan.micropanel
              ? ValueRange(
                    e.sub(e.index(plan.columns), e.mul(at[1], plan.micropanel)))
              : ValueRange(),
          ArrayRef<int64_t>{0});
  }
}

void ColumnTiler::emitFinal(tile::KernelOp kernel, const ColumnLaunch &launch,
                            ArrayRef<unsigned> partials,
                            ArrayRef<unsigned> results, OpBuilder &b) {
  Location loc = kernel.getLoc();
  EmitTarget target{plan.piece, launch.argumentBuffers(kernel), loc};
  TileBuilder e{b, loc};
  SmallVector<Value> at =
      e.unravel(kernel.getBlockNumber(), {plan.micropanels(), plan.outer});
  EmitScope level(target, b);
  plan.enter(level, e, at[0], at[1]);
  Value column = e.mul(at[0], plan.micropanel);
  level.builder = b;
  SmallVector<Value> sums;
  for (unsigned node : plan.reductions)
    sums.push_back(neutralTile(level, node));
  auto totals = e.forRange(
      e.index(0), e.index(plan.runs), 1, sums,
      [&](Value run, ValueRange carried) {
        SmallVector<Value> next;
        Value place = plan.placeOf(e, run, at[1], column);
        for (auto [i, node] : llvm::enumerate(plan.reductions)) {
          Value buffer = kernel.getBuffers()[partials[i]], part;
          if (level.isScalar())
            part = b.create<memref::LoadOp>(loc, buffer, place);
          else
            part = b.create<tile::LoadOp>(
                loc, carried[i].getType(), buffer, ValueRange(place),
                plan.columns % plan.micropanel
                    ? ValueRange(e.sub(e.index(plan.columns), column))
                    : ValueRange(),
                ArrayRef<int64_t>{0});
          next.push_back(combine(b, loc, kindOf(plan.piece.nodes[node]),
                                 carried[i], part));
        }
        return next;
      });
  totals.front().getDefiningOp()->setAttr(kUnrollByAttr,
                                          b.getI64IntegerAttr(kRowsInFlight));
  level.builder = b;
  for (auto [node, total] : llvm::zip_equal(plan.reductions, totals))
    level.set(node, total);
  SmallVector<Value> values;
  for (const ExprPiece::Root &root : plan.piece.roots)
    values.push_back(level.emitTile(root.node));
  for (auto [i, root] : llvm::enumerate(plan.piece.roots))
    level.store(values[i], tensorType(cluster.getResult(i)).getElementType(),
                kernel.getBuffers()[results[i]], root.address);
}

llvm::Expected<SmallVector<Value>> ColumnTiler::launchPartial() {
  ColumnLaunch l;
  SmallVector<unsigned> operands;
  for (unsigned node : plan.reductions)
    operands.push_back(plan.piece.nodes[node].operands[0]);
  l.takeArguments(cluster, plan.piece, neededFor(plan.piece, operands));
  unsigned firstResult = l.spec.buffers.size();
  for (unsigned node : plan.reductions) {
    l.outputs.push_back(RankedTensorType::get(
        {plan.runs * plan.outer, plan.columns}, heldOf(node)));
    l.spec.buffers.push_back(bufferType(l.outputs.back()));
    l.spec.access.push_back(tile::Access::write);
  }
  l.spec.name = (cluster.getName() + "_partial").str();
  l.spec.skeleton = tile::Skeleton::column;
  l.spec.summary = summarize(cluster);
  l.spec.flops = cluster.getFlops();
  l.spec.key = expression.key();
  l.spec.blocks = plan.runs * plan.micropanels() * plan.outer;
  l.spec.build = [&](tile::KernelOp kernel, const TileTarget &,
                     OpBuilder &b) -> llvm::Error {
    emitPartial(kernel, l, firstResult, b);
    return llvm::Error::success();
  };
  return context.launch(cluster, l.spec, l.inputs, l.outputs);
}

llvm::Expected<SmallVector<Value>>
ColumnTiler::launchFinal(ValueRange partials) {
  ColumnLaunch l;
  SmallVector<unsigned> roots;
  for (const ExprPiece::Root &root : plan.piece.roots)
    roots.push_back(root.node);
  l.takeArguments(cluster, plan.piece, neededFor(plan.piece, roots));
  // Gradients that are accumulated in memory.
  ArrayRef<int64_t> pairs =
      cluster.getAccumulates().value_or(ArrayRef<int64_t>());
  SmallVector<std::optional<unsigned>> ofResult(cluster.getNumResults());
  for (size_t p = 0; p < pairs.size(); p += 2)
    if (std::optional<unsigned> buffer = l.ofArgument[pairs[p]]) {
      l.spec.access[*buffer] = tile::Access::read_write;
      ofResult[pairs[p + 1]] = buffer;
    }
  SmallVector<unsigned> partialBuffers, results;
  for (Value partial : partials) {
    partialBuffers.push_back(l.spec.buffers.size());
    l.spec.buffers.push_back(bufferType(partial.getType()));
    l.spec.access.push_back(tile::Access::read);
    l.inputs.push_back(partial);
  }
  for (auto [i, result] : llvm::enumerate(cluster.getResults()))
    if (!ofResult[i]) {
      ofResult[i] = l.spec.buffers.size();
      l.spec.buffers.push_back(bufferType(result.getType()));
      l.spec.access.push_back(tile::Access::write);
    }
  for (std::optional<unsigned> buffer : ofResult)
    results.push_back(*buffer);
  l.spec.name = cluster.getName().str();
  l.spec.skeleton = tile::Skeleton::column;
  l.spec.summary = summarize(cluster) + ", of partial results";
  l.spec.key = expression.key() + "final";
  l.spec.blocks = plan.micropanels() * plan.outer;
  l.spec.build = [&](tile::KernelOp kernel, const TileTarget &,
                     OpBuilder &b) -> llvm::Error {
    emitFinal(kernel, l, partialBuffers, results, b);
    return llvm::Error::success();
  };
  return launchResults(context, cluster, l.spec, l.inputs,
                       cluster.getResultTypes(), results);
}

llvm::Expected<SmallVector<Value>> ColumnTiler::run() {
  auto partials = launchPartial();
  if (!partials)
    return partials.takeError();
  return launchFinal(*partials);
}

//===--- entry ------------------------------------------------------------===//

bool tessera::isTallColumn(const ClusterExpression &expression) {
  return expression.pieces.size() == 1 &&
         ColumnPlan(expression.pieces.front()).rows >= 2 * kRun;
}

llvm::Expected<SmallVector<Value>>
tessera::tileGpuColumn(ClusterOp cluster, const ClusterExpression &expression,
                       TilingContext &context) {
  return ColumnTiler(cluster, expression, context).run();
}
