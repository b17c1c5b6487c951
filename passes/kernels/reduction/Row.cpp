// Row clusters: reductions over the last dimension and the ops around them.
// There is one pass over the row for every level of dependent reductions, and
// one more to write the results. Values that are expensive to compute stay in
// shared memory between the passes; where a row does not fit there, a GPU sums
// exponentials in the pass that finds their maximum.
#include "passes/kernels/gpu/InFlight.h"
#include "passes/kernels/reduction/Reductions.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

// Recomputing an element of this cost (in additions) costs more than keeping
// it.
static constexpr int64_t kKeepCost = 8;

namespace {

// The passes over a row: which reductions each one finishes, which values are
// kept from one to the next.
class RowPlan {
public:
  RowPlan(const ExprPiece &piece, int64_t reduced, const TileTarget &target);

  struct Pass {
    SmallVector<unsigned> reductions; ///< none in the last pass
    SmallVector<unsigned> keep, reload;
  };
  SmallVector<Pass> passes; ///< the last one writes full results
  SmallVector<unsigned> rowRoots, fullRoots; ///< results by their shape
  OnlineSums online;

private:
  bool varies(unsigned node) const {
    return piece.nodes[node].dims & reducedDims;
  }
  int64_t costOf(unsigned node) const;
  void visit(unsigned node, unsigned pass);

  const ExprPiece &piece;
  uint64_t reducedDims = 0;
  int64_t keepable; ///< values of a whole row that fit shared memory
  DenseMap<unsigned, unsigned> firstPass; ///< node → pass that computes it
  llvm::DenseSet<std::pair<unsigned, unsigned>> seen;
  llvm::DenseSet<unsigned> kept;
};

} // namespace

RowPlan::RowPlan(const ExprPiece &piece, int64_t reduced,
                 const TileTarget &target)
    : piece(piece), keepable(target.sharedBytes / (reduced * 8)) {
  // A row that must be read from memory again is read once less.
  if (target.gpu && keepable == 0)
    online = findOnlineSums(piece);
  for (unsigned k = piece.rank() - piece.groups.back(); k < piece.rank(); ++k)
    reducedDims |= uint64_t(1) << k;
  // The depth of a node in dependent reductions.
  SmallVector<unsigned> depth(piece.nodes.size());
  for (auto [i, node] : llvm::enumerate(piece.nodes)) {
    for (unsigned operand : node.operands)
      depth[i] = std::max(depth[i], depth[operand]);
    if (node.kind != ExprNode::reduce)
      continue;
    if (passes.size() <= depth[i])
      passes.resize(depth[i] + 1);
    unsigned pass = depth[i]++;
    if (auto sum = online.find(i); sum != online.end())
      pass = depth[sum->second] - 1;
    passes[pass].reductions.push_back(i);
  }
  passes.emplace_back();
  for (auto [i, root] : llvm::enumerate(piece.roots)) {
    bool full = llvm::any_of(
        llvm::seq(piece.rank() - piece.groups.back(), piece.rank()),
        [&](unsigned dim) { return root.address.dependsOn(dim); });
    (full ? fullRoots : rowRoots).push_back(i);
  }
  for (unsigned pass = 0; pass + 1 < passes.size(); ++pass)
    for (unsigned node : passes[pass].reductions)
      if (!online.contains(node)) // or it has what its maximum has
        visit(piece.nodes[node].operands[0], pass);
  for (unsigned i : fullRoots)
    visit(piece.roots[i].node, passes.size() - 1);
}

int64_t RowPlan::costOf(unsigned node) const {
  llvm::DenseSet<unsigned> counted;
  SmallVector<unsigned> work{node};
  int64_t cost = 0;
  while (!work.empty()) {
    unsigned next = work.pop_back_val();
    if (!varies(next) || (next != node && kept.contains(next)) ||
        !counted.insert(next).second)
      continue;
    cost += nodeCost(piece.nodes[next]);
    llvm::append_range(work, piece.nodes[next].operands);
  }
  return cost;
}

// The inputs of `pass`: reloaded if an earlier pass computed them and they are
// expensive.
void RowPlan::visit(unsigned node, unsigned pass) {
  if (!varies(node) || !seen.insert({node, pass}).second)
    return;
  auto [it, isNew] = firstPass.try_emplace(node, pass);
  if (!isNew && it->second < pass) {
    bool keep = kept.contains(node);
    if (!keep && keepable > 0 && costOf(node) >= kKeepCost) {
      keep = true;
      --keepable;
      kept.insert(node);
      passes[it->second].keep.push_back(node);
    }
    if (keep) {
      passes[pass].reload.push_back(node);
      return;
    }
  }
  for (unsigned operand : piece.nodes[node].operands)
    visit(operand, pass);
}

//===--- emission ---------------------------------------------------------===//

namespace {

// One piece of one kernel.
struct RowKernel {
  ClusterOp cluster;
  const ExprPiece &piece;
  const RowPlan &plan;
  ArrayRef<Value> results;
  const TileTarget &target;
  DenseMap<unsigned, Value> memory; ///< kept node → its shared copy

  unsigned keptDims() const { return piece.rank() - piece.groups.back(); }
  Type heldOf(unsigned node) const {
    return heldElement(piece.nodes[node].element);
  }
  /// Index within a row's copy.
  Linear rowAddress() const {
    Linear address = Linear::zero(piece.rank());
    int64_t stride = 1;
    for (unsigned dim = piece.rank(); dim-- > keptDims();) {
      address.coefficients[dim] = stride;
      stride *= piece.sizes[dim];
    }
    return address;
  }
  void allocate(OpBuilder &b, Location loc);
  void reload(EmitScope &tile, const RowPlan::Pass &pass);
  void keep(EmitScope &tile, const RowPlan::Pass &pass);
  void emitRow(EmitScope &row);
  void writeTiles(EmitScope &level, unsigned dim);
  void store(EmitScope &scope, ArrayRef<unsigned> roots);
};

} // namespace

void RowKernel::allocate(OpBuilder &b, Location loc) {
  int64_t elements = 1;
  for (unsigned dim = keptDims(); dim < piece.rank(); ++dim)
    elements *= piece.sizes[dim];
  for (const RowPlan::Pass &pass : plan.passes)
    for (unsigned node : pass.keep)
      memory[node] = b.create<tile::AllocOp>(
          loc, MemRefType::get(
                   {elements}, memoryElement(heldOf(node)), AffineMap(),
                   tile::SharedAttr::get(b.getContext(), tile::Layout::rows)));
}

void RowKernel::reload(EmitScope &tile, const RowPlan::Pass &pass) {
  for (unsigned node : pass.reload)
    tile.set(node, tile.load(memory[node], heldOf(node), rowAddress()));
}

void RowKernel::keep(EmitScope &tile, const RowPlan::Pass &pass) {
  for (unsigned node : pass.keep)
    tile.store(tile.emitTile(node), heldOf(node), memory[node], rowAddress());
}

void RowKernel::store(EmitScope &scope, ArrayRef<unsigned> roots) {
  SmallVector<Value> values;
  for (unsigned i : roots)
    values.push_back(scope.emitTile(piece.roots[i].node));
  for (auto [value, i] : llvm::zip_equal(values, roots))
    scope.store(value, tensorType(cluster.getResult(i)).getElementType(),
                results[i], piece.roots[i].address);
}

void RowKernel::writeTiles(EmitScope &level, unsigned dim) {
  if (dim + 1 < piece.rank())
    return forEachIndex(level, dim,
                        [&](EmitScope &inner) { writeTiles(inner, dim + 1); });
  forEachTile(level, dim, target, [&](EmitScope &tile) {
    reload(tile, plan.passes.back());
    store(tile, plan.fullRoots);
  });
}

void RowKernel::emitRow(EmitScope &row) {
  for (const RowPlan::Pass &pass : plan.passes) {
    if (pass.reductions.empty())
      continue;
    SmallVector<Value> inits;
    for (unsigned node : pass.reductions)
      inits.push_back(neutral(row.builder, row.loc(), kindOf(piece.nodes[node]),
                              heldOf(node)));
    SmallVector<Value> values = reduceOver(
        row, pass.reductions, keptDims(), inits, target,
        [&](EmitScope &tile) { reload(tile, pass); },
        [&](EmitScope &tile) { keep(tile, pass); }, plan.online);
    for (auto [node, value] : llvm::zip_equal(pass.reductions, values))
      row.set(node, value);
  }
  if (!plan.fullRoots.empty())
    writeTiles(row, keptDims());
  if (!plan.rowRoots.empty())
    store(row, plan.rowRoots);
}

//===--- entry ------------------------------------------------------------===//

static RowGrid planGrid(const ExprPiece &piece, int64_t reduced,
                        const TileTarget &target) {
  unsigned dims = piece.rank() - piece.groups.back();
  int64_t rows = 1, elements = blockElements(target);
  for (unsigned dim = 0; dim < dims; ++dim)
    rows *= piece.sizes[dim];
  if (target.gpu)
    elements =
        gpu::elementsOfBlock(rows * reduced, elements, target.multiprocessors);
  return {dims, rows, partsOf(elements, reduced)};
}

static void buildPiece(tile::KernelOp kernel, const ClusterLaunch &launch,
                       ClusterOp cluster, const ExprPiece &piece,
                       const RowPlan &plan, const RowGrid &grid, Value block,
                       const TileTarget &target, OpBuilder &b) {
  EmitTarget emitTarget{piece, launch.argumentBuffers(kernel), kernel.getLoc()};
  SmallVector<Value> results = launch.resultBuffers(kernel);
  RowKernel rows{cluster, piece,  plan,
                 results, target, DenseMap<unsigned, Value>()};
  OpBuilder entry = OpBuilder::atBlockBegin(&kernel.getBody().front());
  rows.allocate(entry, kernel.getLoc());
  EmitScope top(emitTarget, b);
  forEachRow(top, grid, block, [&](EmitScope &row) { rows.emitRow(row); });
}

llvm::Expected<SmallVector<Value>> tessera::tileRow(ClusterOp cluster,
                                                    TilingContext &context) {
  llvm::Expected<ClusterExpression> expression = buildExpression(cluster);
  if (!expression)
    return expression.takeError();
  ClusterLaunch launch(cluster, *expression, tile::Skeleton::row,
                       cluster.getResultTypes());
  SmallVector<RowGrid> grids;
  SmallVector<int64_t> ends;
  for (const ExprPiece &piece : expression->pieces) {
    grids.push_back(planGrid(piece, expression->reduced, context.target()));
    launch.spec.blocks += grids.back().blocks();
    ends.push_back(launch.spec.blocks);
  }
  launch.spec.build = [&](tile::KernelOp kernel, const TileTarget &target,
                          OpBuilder &b) -> llvm::Error {
    forPieceOfBlock(b, kernel.getLoc(), kernel.getBlockNumber(), ends,
                    [&](OpBuilder &inner, unsigned i, Value block) {
                      const ExprPiece &piece = expression->pieces[i];
                      RowPlan plan(piece, expression->reduced, target);
                      buildPiece(kernel, launch, cluster, piece, plan, grids[i],
                                 block, target, inner);
                    });
    return llvm::Error::success();
  };
  return launch.emit(context);
}
