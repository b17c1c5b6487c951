#include "passes/kernels/TileEmitter.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

//===--- types and conversions --------------------------------------------===//

Type tessera::memoryElement(Type element) {
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(),
                            std::max(8u, integer.getWidth()));
  return element;
}

Type tessera::heldElement(Type element) {
  if (auto integer = dyn_cast<IntegerType>(element))
    return IntegerType::get(element.getContext(), integer.getWidth());
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

MemRefType tessera::bufferType(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  return MemRefType::get({type.getNumElements()},
                         memoryElement(type.getElementType()));
}

static Type withElement(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

Value tessera::toHeld(OpBuilder &b, Location loc, Value value, Type element) {
  Type held = withElement(value.getType(), heldElement(element));
  if (value.getType() == held)
    return value;
  if (isa<FloatType>(element))
    return b.create<arith::ExtFOp>(loc, held, value);
  return b.create<arith::TruncIOp>(loc, held, value);
}

Value tessera::toMemory(OpBuilder &b, Location loc, Value value, Type element) {
  Type memory = withElement(value.getType(), memoryElement(element));
  if (value.getType() == memory)
    return value;
  // Values that were just rounded to the type and extended again.
  if (auto extended = value.getDefiningOp<arith::ExtFOp>();
      extended && extended.getIn().getType() == memory)
    return extended.getIn();
  if (isa<FloatType>(element))
    return b.create<arith::TruncFOp>(loc, memory, value);
  return b.create<arith::ExtUIOp>(loc, memory, value);
}

Value tessera::emitConstant(OpBuilder &b, Location loc, TypedAttr value) {
  Type held = heldElement(value.getType());
  if (auto number = dyn_cast<FloatAttr>(value))
    return b.create<arith::ConstantOp>(
        loc, b.getFloatAttr(held, number.getValueAsDouble()));
  return b.create<arith::ConstantOp>(
      loc, b.getIntegerAttr(held, cast<IntegerAttr>(value).getValue()));
}

Value tessera::emitIndex(OpBuilder &b, Location loc, int64_t value) {
  return b.create<arith::ConstantIndexOp>(loc, value);
}

//===--- levels -----------------------------------------------------------===//

void EmitScope::setIndex(unsigned dim, Value index) {
  if (indices.size() < target.piece.rank())
    indices.resize(target.piece.rank());
  indices[dim] = index;
  known |= uint64_t(1) << dim;
}

void EmitScope::setTile(ArrayRef<TileDim> dims, Value valid) {
  SmallVector<Value> all(dims.size());
  if (valid)
    all.back() = valid;
  setTile(dims, all);
}

void EmitScope::setTile(ArrayRef<TileDim> dims, ArrayRef<Value> valid) {
  tile.assign(dims.begin(), dims.end());
  bounds.assign(valid.begin(), valid.end());
}

EmitScope &EmitScope::owner(const ExprNode &node) {
  EmitScope *scope = this;
  while (scope->parent && !(node.dims & ~scope->parent->known))
    scope = scope->parent;
  return *scope;
}

EmitScope &EmitScope::outermost() {
  EmitScope *scope = this;
  while (scope->parent)
    scope = scope->parent;
  return *scope;
}

void EmitScope::set(unsigned node, Value value) {
  owner(target.piece.nodes[node]).values[node] = value;
}

VectorType EmitScope::tileType(Type element) const {
  SmallVector<int64_t> shape;
  for (TileDim dim : tile)
    shape.push_back(dim.size);
  return VectorType::get(shape, element);
}

Value EmitScope::emit(unsigned index) {
  const ExprNode &node = target.piece.nodes[index];
  EmitScope &scope = owner(node);
  if (auto it = scope.values.find(index); it != scope.values.end())
    return it->second;
  Value value = scope.make(node);
  scope.values[index] = value;
  return value;
}

Value EmitScope::emitTile(unsigned index) {
  Value value = emit(index);
  if (tile.empty() || isa<VectorType>(value.getType()))
    return value;
  return spread(index, value);
}

// Broadcasts a scalar over the tile, at the level where the scalar is known.
Value EmitScope::spread(unsigned index, Value scalar) {
  VectorType type = tileType(scalar.getType());
  EmitScope &scope = owner(target.piece.nodes[index]);
  Value &result =
      scope.spreads[{index, const_cast<void *>(type.getAsOpaquePointer())}];
  if (result)
    return result;
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    result = scope.builder.create<arith::ConstantOp>(
        loc(),
        DenseElementsAttr::get(type, cast<Attribute>(constant.getValue())));
  else
    result = scope.builder.create<tile::BroadcastOp>(loc(), type, scalar,
                                                     ArrayRef<int64_t>());
  return result;
}

//===--- nodes ------------------------------------------------------------===//

Value EmitScope::make(const ExprNode &node) {
  switch (node.kind) {
  case ExprNode::load:
    return makeLoad(node);
  case ExprNode::constant: {
    auto splat = cast<DenseElementsAttr>(cast<ConstantOp>(node.op).getValue());
    if (isa<FloatType>(node.element))
      return emitConstant(
          builder, loc(),
          builder.getFloatAttr(
              node.element, splat.getSplatValue<APFloat>().convertToDouble()));
    return emitConstant(builder, loc(),
                        builder.getIntegerAttr(heldElement(node.element),
                                               splat.getSplatValue<APInt>()));
  }
  case ExprNode::zero:
    return builder.create<arith::ConstantOp>(
        loc(), builder.getZeroAttr(heldElement(node.element)));
  case ExprNode::index:
    return makeIndex(node.address, heldElement(node.element));
  case ExprNode::random:
    return makeRandom(node);
  case ExprNode::elementwise:
    return makeElementwise(node);
  case ExprNode::given:
  case ExprNode::reduce:
    break;
  }
  llvm_unreachable("skeletons set reductions and given values");
}

bool EmitScope::variesAlongTile(const Linear &form) const {
  return llvm::any_of(tile, [&](TileDim d) {
    return form.dependsOn(d.dim) && target.piece.sizes[d.dim] > 1;
  });
}

Value EmitScope::makeElementwise(const ExprNode &node) {
  bool vector = false;
  for (unsigned operand : node.operands)
    vector |= isa<VectorType>(emit(operand).getType());
  SmallVector<Value> operands;
  for (unsigned operand : node.operands)
    operands.push_back(vector ? emitTile(operand) : emit(operand));
  return cast<Elementwise>(node.op).emitScalar(builder, operands);
}

// constant + Σ coefficient · index, at the first element of the tile.
Value EmitScope::makeIndexBase(const Linear &form) {
  Value base = emitIndex(builder, loc(), form.constant);
  for (auto [dim, c] : llvm::enumerate(form.coefficients)) {
    if (!c || target.piece.sizes[dim] <= 1)
      continue;
    Value step = indices[dim];
    if (c != 1)
      step = builder.create<arith::MulIOp>(loc(), step,
                                           emitIndex(builder, loc(), c));
    base = builder.create<arith::AddIOp>(loc(), base, step);
  }
  return base;
}

// The same along the tile, as a vector.
Value EmitScope::makeIndex(const Linear &form, Type type) {
  Value base = makeIndexBase(form);
  base = builder.create<arith::IndexCastOp>(loc(), type, base);
  if (!variesAlongTile(form))
    return base;
  Value result = builder.create<tile::BroadcastOp>(loc(), tileType(type), base,
                                                   ArrayRef<int64_t>());
  for (auto [place, d] : llvm::enumerate(tile)) {
    int64_t c = form.coefficients[d.dim];
    if (!c)
      continue;
    Value lane =
        builder.create<tile::IotaOp>(loc(), tileType(builder.getI32Type()),
                                     emitIndex(builder, loc(), 0), place);
    unsigned width = type.getIntOrFloatBitWidth();
    if (width > 32)
      lane = builder.create<arith::ExtUIOp>(loc(), tileType(type), lane);
    else if (width < 32)
      lane = builder.create<arith::TruncIOp>(loc(), tileType(type), lane);
    if (c != 1) {
      Value factor = builder.create<arith::ConstantOp>(
          loc(), DenseElementsAttr::get(tileType(type),
                                        Attribute(builder.getIntegerAttr(
                                            type, APInt(64, c).trunc(width)))));
      lane = builder.create<arith::MulIOp>(loc(), lane, factor);
    }
    result = builder.create<arith::AddIOp>(loc(), result, lane);
  }
  return result;
}

// The number of groups of four consecutive elements in the tile, if it consists
// of such groups.
std::optional<int64_t> EmitScope::randomGroups(const ExprNode &node) const {
  if (tile.size() != 1 || tile[0].size % 4 ||
      node.address.coefficients[tile[0].dim] != 1 || node.address.constant % 4)
    return {};
  for (auto [dim, c] : llvm::enumerate(node.address.coefficients))
    if (dim != tile[0].dim && target.piece.sizes[dim] > 1 && c % 4)
      return {};
  if (node.operands.size() > 2 && entryElements(cast<RandomOp>(node.op)) % 4)
    return {};
  return tile[0].size / 4;
}

Value EmitScope::makeRandom(const ExprNode &node) {
  auto op = cast<RandomOp>(node.op);
  RandomOperands operands{emit(node.operands[0]), emit(node.operands[1]),
                          node.operands.size() > 2 ? emit(node.operands[2])
                                                   : Value()};
  Type i64 = builder.getI64Type();
  std::optional<int64_t> groups = randomGroups(node);
  if (!groups)
    return emitRandom(builder, op, makeIndex(node.address, i64), operands);
  // Tiles start at multiples of four.
  Value first = builder.create<arith::ShRUIOp>(
      loc(), makeIndexBase(node.address), emitIndex(builder, loc(), 2));
  first = builder.create<arith::IndexCastOp>(loc(), i64, first);
  auto type = VectorType::get({*groups}, i64);
  Value lanes = builder.create<tile::IotaOp>(
      loc(), VectorType::get({*groups}, builder.getI32Type()),
      emitIndex(builder, loc(), 0), 0);
  Value group = builder.create<arith::AddIOp>(
      loc(),
      builder.create<tile::BroadcastOp>(loc(), type, first,
                                        ArrayRef<int64_t>()),
      builder.create<arith::ExtUIOp>(loc(), type, lanes));
  return emitRandomGroups(builder, op, group, operands);
}

//===--- memory -----------------------------------------------------------===//

// memref.reinterpret_cast of `buffer` whose dimension j advances as dimension
// dims[j] of the space; before them the gathered row, if there is one.
Value EmitScope::view(Value buffer, const Linear &address,
                      ArrayRef<unsigned> dims, int64_t rowStride) {
  auto dense = cast<MemRefType>(buffer.getType());
  // A flat buffer is addressed by the index.
  if (dense.isDynamicDim(0) || (dims.empty() && !rowStride))
    return buffer;
  SmallVector<int64_t> sizes, strides;
  if (rowStride) {
    sizes.push_back(dense.getNumElements() / rowStride);
    strides.push_back(rowStride);
  }
  for (unsigned dim : dims) {
    sizes.push_back(target.piece.sizes[dim]);
    strides.push_back(address.coefficients[dim]);
  }
  if (sizes == dense.getShape() && strides == ArrayRef<int64_t>{1} &&
      address.constant == 0)
    return buffer;
  EmitScope &kernel = outermost();
  std::vector<int64_t> key{static_cast<int64_t>(reinterpret_cast<intptr_t>(
                               buffer.getAsOpaquePointer())),
                           address.constant};
  llvm::append_range(key, sizes);
  llvm::append_range(key, strides);
  Value &result = kernel.views[key];
  if (result)
    return result;
  auto layout =
      StridedLayoutAttr::get(builder.getContext(), address.constant, strides);
  auto type = MemRefType::get(sizes, dense.getElementType(), layout,
                              dense.getMemorySpace());
  result = kernel.builder.create<memref::ReinterpretCastOp>(
      loc(), type, buffer, address.constant, sizes, strides);
  return result;
}

EmitScope::Access EmitScope::access(Value buffer, const Linear &address,
                                    Value row, int64_t rowStride) {
  Access access;
  SmallVector<unsigned> dims;
  for (unsigned dim = 0; dim < target.piece.rank(); ++dim)
    if (address.dependsOn(dim) && target.piece.sizes[dim] > 1)
      dims.push_back(dim);
  access.memory = view(buffer, address, dims, rowStride);
  if (row)
    access.indices.push_back(row);
  if (dims.empty() && !row)
    access.indices.push_back(emitIndex(builder, loc(), address.constant));
  for (unsigned dim : dims)
    access.indices.push_back(indices[dim]);
  for (auto [place, d] : llvm::enumerate(tile)) {
    auto *it = llvm::find(dims, d.dim);
    if (it == dims.end())
      continue;
    access.along.push_back(it - dims.begin() + (row ? 1 : 0));
    access.shape.push_back(d.size);
    access.dims.push_back(place);
    if (bounds[place] || !access.bounds.empty())
      access.bounds.push_back(
          bounds[place] ? bounds[place] : emitIndex(builder, loc(), d.size));
  }
  return access;
}

Value EmitScope::makeLoad(const ExprNode &node) {
  Value row;
  if (node.rowStride)
    row = builder.create<arith::IndexCastOp>(loc(), builder.getIndexType(),
                                             emit(node.operands[0]));
  return load(target.arguments[node.argument], node.element, node.address, row,
              node.rowStride);
}

Value EmitScope::load(Value buffer, Type element, const Linear &address,
                      Value row, int64_t rowStride) {
  Access from = access(buffer, address, row, rowStride);
  if (from.along.empty()) {
    Value scalar =
        builder.create<memref::LoadOp>(loc(), from.memory, from.indices);
    return toHeld(builder, loc(), scalar, element);
  }
  auto type = VectorType::get(
      from.shape, cast<MemRefType>(from.memory.getType()).getElementType());
  Value value = builder.create<tile::LoadOp>(
      loc(), type, from.memory, from.indices, from.bounds, from.along);
  value = toHeld(builder, loc(), value, element);
  VectorType whole = tileType(heldElement(element));
  if (value.getType() != whole)
    value = builder.create<tile::BroadcastOp>(loc(), whole, value, from.dims);
  return value;
}

void EmitScope::store(Value value, Type element, Value buffer,
                      const Linear &address, Value row, int64_t rowStride) {
  Access to = access(buffer, address, row, rowStride);
  value = toMemory(builder, loc(), value, element);
  if (!isa<VectorType>(value.getType()))
    builder.create<memref::StoreOp>(loc(), value, to.memory, to.indices);
  else
    builder.create<tile::StoreOp>(loc(), value, to.memory, to.indices,
                                  to.bounds, to.along);
}
