#include "passes/sharding/Resharder.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

SmallVector<Coordinates> sharding::membersOf(const Mesh &mesh,
                                             const Coordinates &at,
                                             ArrayRef<unsigned> axes) {
  SmallVector<Coordinates> members;
  for (int64_t i = 0, n = mesh.size(axes); i < n; ++i) {
    Coordinates place = at;
    int64_t rest = i;
    for (unsigned axis : llvm::reverse(axes)) {
      place[axis] = rest % mesh.size(axis);
      rest /= mesh.size(axis);
    }
    members.push_back(std::move(place));
  }
  return members;
}

//===--- cells ------------------------------------------------------------===//

size_t Resharder::Cell::kept() const {
  size_t i = 0;
  while (i < now.size() && i < then.size() && now[i] == then[i])
    ++i;
  return i;
}

ArrayRef<unsigned> Resharder::Cell::leaving() const {
  return ArrayRef(now).drop_front(kept());
}

ArrayRef<unsigned> Resharder::Cell::coming() const {
  return ArrayRef(then).drop_front(kept());
}

// Splits both placements into common factors, from the last one on.
bool Resharder::refine(const Placement &from, const Placement &to) {
  cells.clear();
  for (unsigned d = from.dims.size(); d-- > 0;) {
    DimPlacement left = from.dims[d], right = to.dims[d];
    while (!left.empty() || !right.empty()) {
      int64_t a = left.empty() ? 1 : left.back().size,
              b = right.empty() ? 1 : right.back().size;
      auto lhs = splitFactors(left, std::min(a, b), mesh),
           rhs = splitFactors(right, std::min(a, b), mesh);
      bool single = lhs && rhs && lhs->second.size() <= 1 &&
                    rhs->second.size() <= 1 && std::min(a, b) > 1;
      if (!single)
        return false;
      cells.insert(cells.begin(), Cell{std::min(a, b), lhs->second[0].axes,
                                       rhs->second[0].axes});
      left = lhs->first, right = rhs->first;
    }
  }
  return true;
}

int64_t Resharder::sizeOf(const Cell &cell) const {
  return Factor{cell.size, cell.now}.rangeAt(mesh, at).size;
}

SmallVector<int64_t> Resharder::shape() const {
  return llvm::map_to_vector(cells,
                             [&](const Cell &cell) { return sizeOf(cell); });
}

// Sizes of the shards of all devices along `over`, in their order, if the axes
// `cut` shard the cell.
SmallVector<int64_t> Resharder::shares(const Cell &cell, ArrayRef<unsigned> cut,
                                       ArrayRef<unsigned> over) const {
  SmallVector<int64_t> sizes;
  Factor factor{cell.size, SmallVector<unsigned, 2>(cut)};
  for (const Coordinates &place : membersOf(mesh, at, over))
    sizes.push_back(factor.rangeAt(mesh, place).size);
  return sizes;
}

DenseI64ArrayAttr Resharder::sharesAttr(ArrayRef<int64_t> shares) const {
  if (llvm::all_equal(shares))
    return {};
  return emit.builder().getDenseI64ArrayAttr(shares);
}

ArrayAttr Resharder::refs(ArrayRef<unsigned> axes) const {
  SmallVector<Attribute> attrs;
  MLIRContext *context = emit.builder().getContext();
  for (unsigned axis : axes)
    attrs.push_back(
        dist::AxisRefAttr::get(context, mesh.axes[axis].getName(), 1, 0));
  return ArrayAttr::get(context, attrs);
}

Value Resharder::offsetOf(const Factor &factor) {
  OpBuilder &builder = emit.builder();
  return builder.create<dist::OffsetOp>(
      emit.location(), RankedTensorType::get({}, builder.getI32Type()),
      FlatSymbolRefAttr::get(mesh.name), refs(factor.axes),
      builder.getI64IntegerAttr(factor.size));
}

// [cell, all others]: collectives send and receive contiguous memory.
void Resharder::toFront(const Cell &cell) {
  int64_t at = &cell - cells.data();
  SmallVector<int64_t> order{at};
  for (int64_t i = 0, e = cells.size(); i < e; ++i)
    if (i != at)
      order.push_back(i);
  if (at != 0)
    value = emit.transpose(value, order);
  auto type = tensorType(value);
  int64_t size = type.getDimSize(0);
  value = emit.reshape(value, {size, size ? type.getNumElements() / size : 0});
}

void Resharder::fromFront(const Cell &cell) {
  int64_t at = &cell - cells.data();
  SmallVector<int64_t> sizes = shape(), moved{sizes[at]}, order;
  for (auto [i, size] : llvm::enumerate(sizes))
    if (static_cast<int64_t>(i) != at)
      moved.push_back(size);
  value = emit.reshape(value, moved);
  for (int64_t i = 0, e = cells.size(); i < e; ++i)
    order.push_back(i == at ? 0 : i < at ? i + 1 : i);
  if (at != 0)
    value = emit.transpose(value, order);
}

//===--- steps ------------------------------------------------------------===//

void Resharder::scatter(Cell &cell, ArrayRef<unsigned> axes,
                        dist::ReduceKind kind) {
  Axes over(axes);
  Axes cut = cell.now;
  llvm::append_range(cut, over);
  SmallVector<int64_t> sizes = shares(cell, cut, over);
  toFront(cell);
  cell.now = cut;
  auto type = tensorType(value);
  OpBuilder &builder = emit.builder();
  value = builder.create<dist::ReduceScatterOp>(
      emit.location(),
      RankedTensorType::get({sizeOf(cell), type.getDimSize(1)},
                            type.getElementType()),
      value, FlatSymbolRefAttr::get(mesh.name), refs(over),
      builder.getI64IntegerAttr(0), sharesAttr(sizes),
      dist::ReduceKindAttr::get(builder.getContext(), kind));
  fromFront(cell);
}

// Reduces partial values: a reduce-scatter if the result is sharded along the
// same axes, otherwise an all-reduce.
void Resharder::reduce(Axes parts, dist::ReduceKind kind) {
  for (Cell &cell : cells) {
    ArrayRef<unsigned> coming = cell.coming();
    Axes over;
    while (over.size() < coming.size() &&
           llvm::is_contained(parts, coming[over.size()]))
      over.push_back(coming[over.size()]);
    if (over.empty() || !cell.leaving().empty())
      continue;
    scatter(cell, over, kind);
    llvm::erase_if(
        parts, [&](unsigned axis) { return llvm::is_contained(over, axis); });
  }
  if (parts.empty())
    return;
  OpBuilder &builder = emit.builder();
  value = builder.create<dist::AllReduceOp>(
      emit.location(), value.getType(), value,
      FlatSymbolRefAttr::get(mesh.name), refs(parts),
      dist::ReduceKindAttr::get(builder.getContext(), kind));
}

// An axis that moves from one cell to another is an all-to-all if all pieces
// are equal; otherwise the tensor is gathered and sliced.
void Resharder::exchange() {
  for (Cell &from : cells)
    for (Cell &to : cells) {
      ArrayRef<unsigned> leaving = from.leaving(), coming = to.coming();
      if (&from == &to || leaving.size() != 1 || !to.leaving().empty() ||
          coming.empty() || coming.front() != leaving.front())
        continue;
      unsigned axis = leaving.front();
      int64_t n = mesh.size(axis), size = sizeOf(to);
      // On all devices: those with other local shapes must do the same.
      auto divides = [&](int64_t share) { return share % n == 0; };
      if (!llvm::all_of(shares(to, to.now, to.now), divides) ||
          !llvm::all_equal(shares(from, from.now, from.now)))
        continue;
      // [to, …, from, …] → pieces [n, to/n, …, from, …] → [to/n, …, n, from, …]
      int64_t own = sizeOf(from);
      toFront(to);
      OpBuilder &builder = emit.builder();
      value = builder.create<dist::AllToAllOp>(
          emit.location(), value.getType(), value,
          FlatSymbolRefAttr::get(mesh.name), refs(axis),
          builder.getI64IntegerAttr(0), builder.getI64IntegerAttr(0));
      SmallVector<int64_t> sizes{n, size / n}, order{1};
      int64_t place = 2, source = &from - cells.data(),
              target = &to - cells.data();
      SmallVector<int64_t> cellOrder;
      for (int64_t i = 0, e = cells.size(); i < e; ++i) {
        if (i == target)
          continue;
        sizes.push_back(i == source ? own : sizeOf(cells[i]));
        if (i == source)
          order.push_back(0);
        order.push_back(place++);
      }
      value = emit.transpose(emit.reshape(value, sizes), order);
      to.now.push_back(axis);
      from.now.pop_back();
      fromFront(to);
    }
}

void Resharder::gather(Cell &cell) {
  Axes over(cell.leaving());
  SmallVector<int64_t> sizes = shares(cell, cell.now, over);
  toFront(cell);
  cell.now.truncate(cell.now.size() - over.size());
  auto type = tensorType(value);
  OpBuilder &builder = emit.builder();
  value = builder.create<dist::AllGatherOp>(
      emit.location(),
      RankedTensorType::get({sizeOf(cell), type.getDimSize(1)},
                            type.getElementType()),
      value, FlatSymbolRefAttr::get(mesh.name), refs(over),
      builder.getI64IntegerAttr(0), sharesAttr(sizes));
  fromFront(cell);
}

// The rows of this device, by an offset that is known at run time, so that all
// devices run one program.
void Resharder::slice(Cell &cell) {
  Factor before{cell.size, cell.now}, after{cell.size, cell.then};
  int64_t rows = after.rangeAt(mesh, at).size;
  Value start = offsetOf(after);
  if (!before.axes.empty())
    start = emit.sub(start, offsetOf(before));
  Type i32 = emit.builder().getI32Type();
  Value ids = emit.add(emit.iota(RankedTensorType::get({rows}, i32), 0),
                       emit.broadcastScalar(start, {rows}));
  toFront(cell);
  cell.now = cell.then;
  value = emit.embedding(value, ids);
  fromFront(cell);
}

//===--- order of steps ---------------------------------------------------===//

// Through the whole tensor, if the placements have no common factors.
Value Resharder::viaWhole(Value local, const Placement &from,
                          const Placement &to) {
  Placement whole = from;
  for (DimPlacement &dim : whole.dims)
    for (Factor &factor : dim)
      factor.axes.clear();
  whole.partial = to.partial;
  // The same factors, so that both steps have common ones.
  Placement target = to;
  Placement middle = to;
  for (DimPlacement &dim : middle.dims)
    for (Factor &factor : dim)
      factor.axes.clear();
  Value all = reshard(local, from, whole);
  return all ? reshard(all, middle, target) : Value();
}

// A buffer of rows that were sent is one factor, whose rows stay.
static Placement withRoomAsRows(const Placement &placement) {
  Placement result = placement;
  result.room = 0;
  result.dims[0] = {Factor{placement.room, {}}};
  return result;
}

Value Resharder::reshard(Value local, const Placement &from,
                         const Placement &to) {
  auto type = tensorType(local);
  if (from.room > 0)
    return reshard(local, withRoomAsRows(from), withRoomAsRows(to));
  if (!refine(from, to))
    return viaWhole(local, from, to);
  Axes parts;
  for (unsigned axis : from.partial)
    if (!llvm::is_contained(to.partial, axis))
      parts.push_back(axis);
  SmallVector<int64_t> result = to.localShape(mesh, at);
  bool slices = llvm::any_of(cells, [&](const Cell &cell) {
    return llvm::any_of(cell.coming(), [&](unsigned axis) {
      return !llvm::is_contained(parts, axis);
    });
  });
  if (slices && !isa<FloatType>(type.getElementType())) {
    emitError(emit.location(), "cannot shard integers on the device; shard ")
        << type << " where it is produced";
    return {};
  }
  value = emit.reshape(local, shape());
  if (!parts.empty())
    reduce(parts, from.kind);
  exchange();
  // Slicing first makes gathers smaller, but devices that gather together must
  // have the same slice: none of its axes may shard another cell at that time.
  auto isFree = [&](unsigned axis) {
    return llvm::none_of(cells, [&](const Cell &cell) {
      return llvm::is_contained(cell.now, axis);
    });
  };
  for (Cell &cell : cells)
    if (cell.leaving().empty() && !cell.coming().empty() &&
        llvm::all_of(cell.coming(), isFree))
      slice(cell);
  for (Cell &cell : cells)
    if (!cell.leaving().empty())
      gather(cell);
  for (Cell &cell : cells)
    if (!cell.coming().empty())
      slice(cell);
  return emit.reshape(value, result);
}
