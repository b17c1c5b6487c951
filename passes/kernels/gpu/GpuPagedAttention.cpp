// Paged attention on a GPU. A block owns a tile of queries that share keys. In
// decode there are few such tiles, so the keys of a sequence are split among
// blocks and a second launch combines their sums (Dao et al. 2023,
// Flash-Decoding). The splits follow from the longest context alone: a
// sequence's bits do not depend on the rest of its batch.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/ClusterLaunch.h"
#include "passes/kernels/attention/ScoreModifier.h"
#include "passes/kernels/gpu/GpuPaged.h"
#include "passes/kernels/gpu/GpuTiles.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using namespace tessera::gpu;

using Values = KernelOps::Values;

namespace {

/// The results of a block with only some of the keys, as f32 [batch, owners,
/// splits, rows], and for the output with head_dim appended.
struct Partials {
  Value maxima, sums, outputs;
};

class PagedBlock {
public:
  PagedBlock(OpBuilder &b, tile::KernelOp kernel, const PagedOperands &operands,
             const PagedShape &shape, const PagedTiles &tiles)
      : e{b, kernel.getLoc()}, b(b), kernel(kernel), o(operands), shape(shape),
        tiles(tiles) {}

  /// Buffers after those of the cluster's arguments are the results.
  void emit(unsigned inputs) {
    kernel.setWarps(ArrayRef<int64_t>{tiles.queries / 16, 1});
    locate();
    Staged query = Staged::make(e, 1, tiles.queries, tiles.dim, tiles.element);
    keys = PagedStages::make(e, tiles);
    values = PagedStages::make(e, tiles);
    query.copy(e, e.index(0), rowsOf(view(o.query)));
    findKeys();
    e.ifTrue(e.compare(arith::CmpIPredicate::slt, begin, end),
             [&] { stage(begin); });
    b.create<tile::CommitOp>(e.loc);
    Softmax before = beforeKeys();
    auto sums = e.forRange(
        begin, end, tiles.keys,
        {before.maximum, before.sum, e.splat(0, {tiles.queries, tiles.dim})},
        [&](Value key, ValueRange state) { return walk(query, key, state); });
    b.create<tile::WaitOp>(e.loc, 0); // for the queries of a block without keys
    auto results = kernel.getBuffers().drop_front(inputs);
    if (tiles.splits > 1)
      storePartials(sums, {results[0], results[1], results[2]});
    else
      storeOutput(sums, results[0]);
  }

private:
  Value view(const AttentionOperand &operand) {
    return emitView(b, e.loc, kernel.getBuffers()[operand.argument],
                    operand.view);
  }
  Value number(const AttentionOperand &operand, ValueRange at) {
    Value loaded = b.create<memref::LoadOp>(e.loc, view(operand), at);
    return b.create<arith::IndexCastOp>(e.loc, b.getIndexType(), loaded);
  }
  Value atLeast(Value x, Value least) {
    return b.createOrFold<arith::MaxSIOp>(e.loc, x, least);
  }

  // The last queries, which see the most keys, come first.
  void locate() {
    int64_t count = tiles.queryTiles(shape);
    SmallVector<Value> at =
        e.unravel(kernel.getBlockNumber(),
                  {tiles.splits, shape.owners(), shape.batch, count});
    split = at[0];
    owner = at[1];
    batch = at[2];
    first = e.mul(e.sub(e.index(count - 1), at[3]), tiles.queries);
    kvHead = shape.isDecode() ? owner : e.div(owner, shape.group());
    position = number(o.starts, batch);
    if (!shape.isDecode())
      position = e.add(position, first);
  }

  // The block's rows of a [batch, tokens, heads, head_dim] memory.
  Source rowsOf(Value memory) {
    Value zero = e.index(0);
    Value rest = shape.rows() % tiles.queries
                     ? e.sub(e.index(shape.rows()), first)
                     : Value();
    Value columns =
        tiles.dim > shape.headDim ? e.index(shape.headDim) : Value();
    if (!shape.isDecode())
      return {memory, {batch, first, owner, zero}, 1, 3, rest, columns};
    Value head = e.add(e.mul(owner, shape.group()), first);
    return {memory, {batch, zero, head, zero}, 2, 3, rest, columns};
  }

  // [begin, end) of the keys: those that a query of the block sees, restricted
  // to the block's split. Tiles begin where they do for any other query, so
  // that sums have one order in all blocks.
  void findKeys() {
    begin = e.index(0);
    end = e.add(position, shape.isDecode() ? 1 : tiles.queries);
    end = e.min(end, number(o.lengths, batch));
    if (shape.window > 0) {
      Value key =
          atLeast(e.sub(position, e.index(shape.window - 1)), e.index(0));
      begin = e.sub(key, e.rem(key, tiles.unit(shape)));
      if (tiles.keys > shape.page)
        firstPage = e.sub(key, e.rem(key, shape.page));
    }
    if (tiles.splits == 1)
      return;
    Value own = e.mul(split, tiles.splitKeys);
    begin = atLeast(begin, own);
    end = e.min(end, e.add(own, tiles.splitKeys));
  }

  // The state before any key. Sinks count in the first split of the keys.
  Softmax beforeKeys() {
    SmallVector<int64_t> rows{tiles.queries};
    Softmax none;
    none.maximum = e.splat(kLeastMaximum, rows);
    none.sum = e.splat(0, rows);
    if (!o.sinks)
      return none;
    Softmax first = softmaxOfSinks(e, sinks(), shape.scale);
    if (tiles.splits == 1)
      return first;
    Value isFirst = e.compare(arith::CmpIPredicate::eq, split, e.index(0));
    auto chosen = e.ifElse(
        isFirst, {first.maximum.getType(), first.sum.getType()},
        [&]() -> Values { return {first.maximum, first.sum}; },
        [&]() -> Values { return {none.maximum, none.sum}; });
    first.maximum = chosen[0], first.sum = chosen[1];
    return first;
  }

  // The sinks of the block's rows: of a group's heads, or of one head.
  Value sinks() {
    Value all = view(*o.sinks);
    if (!shape.isDecode())
      return e.spreadNumber(b.create<memref::LoadOp>(e.loc, all, owner),
                            {tiles.queries});
    Value head = e.add(e.mul(owner, shape.group()), first);
    SmallVector<Value> bound;
    if (shape.rows() % tiles.queries)
      bound.push_back(e.sub(e.index(shape.rows()), first));
    auto type = VectorType::get({tiles.queries}, b.getF32Type());
    return b.create<tile::LoadOp>(e.loc, type, all, ValueRange(head), bound,
                                  ArrayRef<int64_t>{0});
  }

  /// Rows of a tile in a page, or in part of one.
  struct Piece {
    int64_t row;
    Value page, start; ///< their page and first row in the cache
    Value there;       ///< how many precede the last key's end
  };
  SmallVector<Piece> piecesOf(Value key) {
    SmallVector<Piece> pieces;
    Value last = e.sub(end, e.index(1));
    for (int64_t row = 0; row < tiles.keys; row += tiles.pieceRows(shape)) {
      Value from = e.add(key, row);
      Value inside = e.min(from, last), count = e.sub(end, from);
      if (firstPage) { // rows before it may have no page
        Value isThere = e.compare(arith::CmpIPredicate::sge, from, firstPage);
        inside = atLeast(inside, firstPage);
        count = b.create<arith::SelectOp>(e.loc, isThere, count, e.index(0));
      }
      Value page = number(o.table, {batch, e.div(inside, shape.page)});
      bool isPart = shape.page > tiles.pieceRows(shape);
      pieces.push_back({row, page,
                        isPart ? e.rem(inside, shape.page) : e.index(0),
                        atLeast(count, e.index(0))});
    }
    return pieces;
  }

  // Starts the copies of a tile of keys and values, one page after another. The
  // last key is followed by zeros, for any contents of the table. Scales come
  // last: they are copied through registers, for which threads wait.
  void stage(Value key) {
    Value place = stageOf(key);
    int64_t rows = tiles.pieceRows(shape);
    SmallVector<Piece> pieces = piecesOf(key);
    auto sourceOf = [&](const AttentionOperand &from, const Piece &piece) {
      SmallVector<Value> at = {piece.page, piece.start, kvHead, e.index(0)};
      return Source{view(from), at, 1, 3, piece.there, e.index(shape.headDim)};
    };
    for (const Piece &piece : pieces) {
      keys.copyRows(e, place, piece.row, rows, sourceOf(o.keys, piece));
      values.copyRows(e, place, piece.row, rows, sourceOf(o.values, piece));
    }
    if (!tiles.areIntegers)
      return;
    for (const Piece &piece : pieces) {
      keys.copyScales(e, place, piece.row, rows, sourceOf(*o.keyScales, piece));
      values.copyScales(e, place, piece.row, rows,
                        sourceOf(*o.valueScales, piece));
    }
  }

  Value stageOf(Value key) {
    return e.rem(e.div(e.sub(key, begin), tiles.keys), 2);
  }

  Value multiply(Value lhs, Value rhs, Value sum) {
    return b.create<tile::MmaOp>(e.loc, sum.getType(), lhs, rhs, sum);
  }
  // state: maximum and sum of each query so far, and the output times the sum.
  SmallVector<Value> walk(const Staged &query, Value key, ValueRange state) {
    b.create<tile::WaitOp>(e.loc, 0);
    Value next = e.add(key, tiles.keys);
    e.ifTrue(e.compare(arith::CmpIPredicate::slt, next, end),
             [&] { stage(next); });
    b.create<tile::CommitOp>(e.loc);
    Value place = stageOf(key);
    if (tiles.areIntegers) {
      keys.extend(e, place);
      values.extend(e, place);
      b.create<tile::WaitOp>(e.loc, 1); // the next tile's copies stay in flight
    }
    Value scores =
        multiply(query.load(e, e.index(0)), keys.loadTransposed(e, place),
                 e.splat(0, {tiles.queries, tiles.keys}));
    scores = keys.scale(e, scores, place);
    scores = mask(ScoreModifier(e, shape).bound(scores), key);

    Softmax now = softmaxOf(e, scores, shape.scale, state[0], state[1]);
    Value weights = values.scale(e, now.weights, place);
    Value output =
        multiply(e.toElement(weights, tiles.element), values.load(e, place),
                 scaleRows(e, state[2], now.rescale));
    return {now.maximum, now.sum, output};
  }

  // Only the tile at the end, and those that the diagonal or the window's edge
  // crosses, need a mask.
  Value mask(Value scores, Value key) {
    Value last =
        shape.isDecode() ? position : e.add(position, tiles.queries - 1);
    Value keyEnd = e.add(key, tiles.keys),
          firstHidden = e.min(end, e.add(position, 1));
    Value crossed =
        ScoreModifier(e, shape).isCrossed(key, keyEnd, firstHidden, last);
    return e.ifElse(
        crossed, scores.getType(),
        [&]() -> Values { return {maskTile(scores, key)}; },
        [&]() -> Values { return {scores}; })[0];
  }

  Value maskTile(Value scores, Value key) {
    ScoreModifier modifier(e, shape);
    ArrayRef<int64_t> tile = cast<VectorType>(scores.getType()).getShape();
    Value here = e.iota(key, tile, 1);
    Value positions = shape.isDecode() ? e.spreadIndex(position, tile)
                                       : e.iota(position, tile, 0);
    Value visible = modifier.isVisible(here, positions, positions);
    Value isWithin =
        e.compare(arith::CmpIPredicate::slt, here, e.spreadIndex(end, tile));
    visible = modifier.both(visible, isWithin);
    return b.create<arith::SelectOp>(e.loc, visible, scores,
                                     e.splat(kMaskedScore, tile));
  }

  void store(Value tile, const Source &to) {
    Type memory = cast<MemRefType>(to.memory.getType()).getElementType();
    SmallVector<Value> bounds;
    if (to.rows || to.columns)
      bounds = {to.rows ? to.rows : e.index(tiles.queries),
                to.columns ? to.columns : e.index(tiles.dim)};
    b.create<tile::StoreOp>(e.loc, e.toElement(tile, memory), to.memory,
                            to.indices, bounds,
                            ArrayRef<int64_t>{to.rowDim, to.columnDim});
  }

  void storeOutput(ValueRange state, Value buffer) {
    // A query that has seen no key has a sum of 0 and an output of 0.
    Value least = e.splat(std::numeric_limits<float>::min(), {tiles.queries});
    Value sum = b.create<arith::MaximumFOp>(e.loc, state[1], least);
    Value inverse =
        b.create<arith::DivFOp>(e.loc, e.splat(1, {tiles.queries}), sum);
    store(scaleRows(e, state[2], inverse),
          rowsOf(emitView(b, e.loc, buffer, o.output())));
  }

  void storePartials(ValueRange state, const Partials &to) {
    int64_t rows = shape.rows();
    Value number = e.add(
        e.mul(e.add(e.mul(batch, shape.owners()), owner), tiles.splits), split);
    Value at = e.add(e.mul(number, rows), first);
    SmallVector<Value> bound;
    if (rows % tiles.queries)
      bound.push_back(e.sub(e.index(rows), first));
    for (auto [value, buffer] :
         {std::pair(state[0], to.maxima), std::pair(state[1], to.sums)})
      b.create<tile::StoreOp>(e.loc, value, buffer, ValueRange(at), bound,
                              ArrayRef<int64_t>{0});
    int64_t width = shape.headDim;
    int64_t all = shape.batch * shape.owners() * tiles.splits * rows;
    Value memory =
        emitView(b, e.loc, to.outputs, View{{}, 0, {all, width}, {width, 1}});
    Source place{memory,
                 {at, e.index(0)},
                 0,
                 1,
                 bound.empty() ? Value() : bound[0],
                 tiles.dim > width ? e.index(width) : Value()};
    store(state[2], place);
  }

  TileBuilder e;
  OpBuilder &b;
  tile::KernelOp kernel;
  const PagedOperands &o;
  const PagedShape &shape;
  const PagedTiles &tiles;
  PagedStages keys, values;
  Value split, owner, batch, kvHead;
  Value first;      ///< row of the block
  Value position;   ///< of its query
  Value begin, end; ///< keys
  /// Key 0 of the first visible page; null if tiles begin with pages.
  Value firstPage;
};

} // namespace

//===--- launches ---------------------------------------------------------===//

static SmallVector<Type> partialTypes(const PagedShape &shape,
                                      const PagedTiles &tiles, Type f32) {
  SmallVector<int64_t> rows = {shape.batch, shape.owners(), tiles.splits,
                               shape.rows()};
  Type perRow = RankedTensorType::get(rows, f32);
  rows.push_back(shape.headDim);
  return {perRow, perRow, RankedTensorType::get(rows, f32)};
}

llvm::Expected<SmallVector<Value>>
tessera::tileGpuPagedAttention(graph::ClusterOp cluster, const PagedPlan &plan,
                               TilingContext &context) {
  const PagedOperands &operands = plan.operands;
  const PagedShape &shape = plan.shape;
  PagedTiles tiles = pagedTiles(cluster, plan);
  unsigned inputs = cluster.getInputs().size();
  LaunchSpec spec =
      attentionLaunch(cluster, tile::Skeleton::paged_attention, plan.blocks());
  spec.gatheredBytes = operands.cacheBytes(cluster, shape);
  spec.key += planKey(plan.kernel);
  spec.build = [&](tile::KernelOp kernel, const TileTarget &,
                   OpBuilder &b) -> llvm::Error {
    PagedBlock(b, kernel, operands, shape, tiles).emit(inputs);
    return llvm::Error::success();
  };
  if (tiles.splits == 1)
    return context.launch(cluster, spec, cluster.getInputs(),
                          cluster.getResultTypes());
  SmallVector<Type> partial =
      partialTypes(shape, tiles, Float32Type::get(cluster.getContext()));
  spec.name += "_splits";
  spec.buffers.truncate(inputs);
  spec.access.truncate(inputs);
  for (Type type : partial) {
    spec.buffers.push_back(bufferType(type));
    spec.access.push_back(tile::Access::write);
  }
  auto sums = context.launch(cluster, spec, cluster.getInputs(), partial);
  if (!sums)
    return sums.takeError();
  return launchPagedCombine(cluster, operands.output(), shape, tiles, *sums,
                            context);
}
