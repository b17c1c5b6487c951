#include "passes/kernels/ClusterLaunch.h"
#include "passes/fusion/PaddedRows.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

std::string tessera::summarize(ClusterOp cluster) {
  llvm::SmallSetVector<StringRef, 8> names;
  for (Operation &op : cluster.getBody().front().without_terminator())
    if (auto fusable = dyn_cast<Fusable>(&op);
        !op.hasAttr(kUnreadAttr) && (!fusable || !fusable.isView()))
      names.insert(op.getName().stripDialect());
  names.remove("constant");
  return llvm::join(names, ", ");
}

std::string tessera::bodyKey(ClusterOp cluster) {
  std::string key;
  llvm::raw_string_ostream os(key);
  Block &body = cluster.getBody().front();
  DenseMap<Value, unsigned> numbers;
  auto number = [&](Value value) {
    unsigned next = numbers.size();
    numbers[value] = next;
    os << ' ' << value.getType().getAsOpaquePointer();
  };
  llvm::for_each(body.getArguments(), number);
  for (Operation &op : body) {
    os << '\n' << op.getName().getAsOpaquePointer();
    for (Value operand : op.getOperands())
      os << " %" << numbers.lookup(operand);
    os << ' ' << op.getPropertiesAsAttribute().getAsOpaquePointer();
    llvm::for_each(op.getResults(), number);
  }
  return key;
}

ClusterLaunch::ClusterLaunch(ClusterOp cluster,
                             const ClusterExpression &expression,
                             tile::Skeleton skeleton, TypeRange results,
                             ArrayRef<Value> whole)
    : cluster(cluster), expression(expression), results(results) {
  spec.name = cluster.getName().str();
  spec.skeleton = skeleton;
  spec.summary = summarize(cluster);
  spec.flops = cluster.getFlops();
  spec.key = expression.key();
  llvm::SmallBitVector used(cluster.getInputs().size());
  for (const ExprPiece &piece : expression.pieces)
    for (const ExprNode &node : piece.nodes)
      if (node.kind == ExprNode::load)
        used.set(node.argument);
  for (Value value : whole)
    used.set(cast<BlockArgument>(value).getArgNumber());
  ArrayRef<int64_t> pairs =
      cluster.getAccumulates().value_or(ArrayRef<int64_t>());
  bufferOfResult.resize(results.size());
  llvm::SmallBitVector inPlace(results.size());
  bufferOfArgument.resize(cluster.getInputs().size());
  for (auto [i, input] : llvm::enumerate(cluster.getInputs())) {
    if (!used[i])
      continue;
    bufferOfArgument[i] = spec.buffers.size();
    spec.buffers.push_back(bufferType(input.getType()));
    spec.access.push_back(tile::Access::read);
    for (size_t p = 0; p < pairs.size(); p += 2)
      if (pairs[p] == static_cast<int64_t>(i)) {
        spec.access.back() = tile::Access::read_write;
        bufferOfResult[pairs[p + 1]] = *bufferOfArgument[i];
        inPlace.set(pairs[p + 1]);
      }
  }
  for (auto [i, result] : llvm::enumerate(results)) {
    if (inPlace[i])
      continue;
    bufferOfResult[i] = spec.buffers.size();
    spec.buffers.push_back(bufferType(result));
    spec.access.push_back(tile::Access::write);
  }
  findReuse();
}

// Every load of the argument is at the index of the result's store, so that an
// element is read for the last time before it is overwritten.
bool ClusterLaunch::mayReuse(unsigned argument, unsigned result) const {
  auto from =
      cast<MemRefType>(bufferType(cluster.getInputs()[argument].getType()));
  auto to = cast<MemRefType>(bufferType(results[result]));
  // Integers are few bytes, and may be indices. A benchmark that runs a kernel
  // again must find them unchanged, or it reads outside its tensors.
  if (!isa<FloatType>(to.getElementType()))
    return false;
  if (from.getNumElements() != to.getNumElements() ||
      from.getElementTypeBitWidth() != to.getElementTypeBitWidth())
    return false;
  for (const ExprPiece &piece : expression.pieces)
    for (const ExprNode &node : piece.nodes)
      if (node.kind == ExprNode::load && node.argument == argument &&
          (node.rowStride || result >= piece.roots.size() ||
           !(node.address == piece.roots[result].address)))
        return false;
  return true;
}

void ClusterLaunch::findReuse() {
  // Positions among the operands and among the results of the launch.
  SmallVector<int64_t> operand(spec.buffers.size()), result(operand);
  int64_t operands = 0, results = 0;
  for (auto [i, access] : llvm::enumerate(spec.access)) {
    operand[i] = access == tile::Access::write ? -1 : operands++;
    result[i] = access == tile::Access::read ? -1 : results++;
  }
  for (unsigned i = 0; i < bufferOfArgument.size(); ++i) {
    if (!bufferOfArgument[i] ||
        spec.access[*bufferOfArgument[i]] != tile::Access::read)
      continue;
    for (unsigned j = 0; j < bufferOfResult.size(); ++j)
      if (spec.access[bufferOfResult[j]] == tile::Access::write &&
          mayReuse(i, j)) {
        spec.reuse.push_back(operand[*bufferOfArgument[i]]);
        spec.reuse.push_back(result[bufferOfResult[j]]);
      }
  }
}

void ClusterLaunch::makeFlat(int64_t elements) {
  for (Type &buffer : spec.buffers) {
    auto memref = cast<MemRefType>(buffer);
    if (memref.hasStaticShape() && memref.getNumElements() == elements)
      buffer = MemRefType::get({ShapedType::kDynamic}, memref.getElementType());
  }
  spec.sizes = {elements};
}

void ClusterLaunch::addInput(Value value) {
  added.insert(added.begin(), value);
  spec.buffers.insert(spec.buffers.begin(), bufferType(value.getType()));
  spec.access.insert(spec.access.begin(), tile::Access::read);
  for (std::optional<unsigned> &buffer : bufferOfArgument)
    if (buffer)
      ++*buffer;
  for (unsigned &buffer : bufferOfResult)
    ++buffer;
  for (size_t i = 0; i < spec.reuse.size(); i += 2)
    ++spec.reuse[i];
}

void ClusterLaunch::makeResultsDynamic() {
  for (unsigned buffer : bufferOfResult)
    spec.buffers[buffer] = MemRefType::get(
        {ShapedType::kDynamic},
        cast<MemRefType>(spec.buffers[buffer]).getElementType());
}

SmallVector<Value> ClusterLaunch::argumentBuffers(tile::KernelOp kernel) const {
  SmallVector<Value> buffers;
  for (std::optional<unsigned> buffer : bufferOfArgument)
    buffers.push_back(buffer ? Value(kernel.getBuffers()[*buffer]) : Value());
  return buffers;
}

SmallVector<Value> ClusterLaunch::resultBuffers(tile::KernelOp kernel) const {
  SmallVector<Value> buffers;
  for (unsigned buffer : bufferOfResult)
    buffers.push_back(kernel.getBuffers()[buffer]);
  return buffers;
}

llvm::Expected<SmallVector<Value>> ClusterLaunch::emit(TilingContext &context) {
  SmallVector<Value> inputs(added);
  for (auto [i, input] : llvm::enumerate(cluster.getInputs()))
    if (bufferOfArgument[i])
      inputs.push_back(input);
  return launchResults(context, cluster, spec, inputs, results, bufferOfResult);
}

llvm::Expected<SmallVector<Value>>
tessera::launchResults(TilingContext &context, ClusterOp cluster,
                       const LaunchSpec &spec, ArrayRef<Value> inputs,
                       TypeRange results, ArrayRef<unsigned> bufferOfResult) {
  auto order = llvm::to_vector(llvm::seq<unsigned>(0, results.size()));
  llvm::sort(order, [&](unsigned a, unsigned b) {
    return bufferOfResult[a] < bufferOfResult[b];
  });
  SmallVector<Type> outputs;
  for (unsigned i : order)
    outputs.push_back(results[i]);
  llvm::Expected<SmallVector<Value>> launched =
      context.launch(cluster, spec, inputs, outputs);
  if (!launched)
    return launched.takeError();
  SmallVector<Value> values(results.size());
  for (auto [place, i] : llvm::enumerate(order))
    values[i] = (*launched)[place];
  return values;
}

bool tessera::loadsAreFlat(ClusterOp cluster, const ExprPiece &piece,
                           unsigned dim) {
  int64_t size = piece.sizes[dim];
  Linear index = Linear::index(dim, piece.rank());
  return size > 1 && llvm::all_of(piece.nodes, [&](const ExprNode &node) {
           if (node.kind != ExprNode::load)
             return true;
           int64_t elements =
               tensorType(cluster.getInputs()[node.argument]).getNumElements();
           bool dense = node.address == index && elements == size;
           bool scalar = node.dims == 0 && elements != size;
           return !node.rowStride && (dense || scalar);
         });
}

// An earlier launch of the kernel on the same input.
static tile::LaunchOp sameLaunch(tile::LaunchOp launch) {
  for (Operation *user : launch.getInputs()[0].getUsers())
    if (auto other = dyn_cast<tile::LaunchOp>(user);
        other && other != launch && other.getKernel() == launch.getKernel() &&
        other->getBlock() == launch->getBlock() &&
        other->isBeforeInBlock(launch))
      return other;
  return {};
}

llvm::Expected<Value> tessera::launchOnce(TilingContext &context,
                                          ClusterOp cluster,
                                          const LaunchSpec &spec, Value input,
                                          Type result) {
  llvm::Expected<SmallVector<Value>> made =
      context.launch(cluster, spec, input, TypeRange(result));
  if (!made)
    return made.takeError();
  auto launch = cast<tile::LaunchOp>(made->front().getDefiningOp());
  tile::LaunchOp same = sameLaunch(launch);
  if (!same)
    return made->front();
  launch.erase();
  return same.getOutputs()[0];
}
