// The functions of a module, the same for every family: what a family adds is
// a FamilyBuilder.
#include "models/ModelBuilder.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

Port ModelBuilder::parameterPort(const Parameter &parameter) {
  Port result{tensor(parameter.shape, b.getF32Type()), {}, parameter.name};
  result.attributes = {
      b.getNamedAttr(graph::kStateAttr, b.getStringAttr(parameter.name)),
      b.getNamedAttr(
          graph::kRoleAttr,
          graph::RoleAttr::get(b.getContext(), graph::Role::parameter))};
  if (parameter.shape.size() >= 2)
    result.attributes.push_back(
        b.getNamedAttr(graph::kDecayAttr, b.getUnitAttr()));
  return result;
}

Port ModelBuilder::port(StringRef attribute, StringRef name, Type type) {
  return {type, {b.getNamedAttr(attribute, b.getStringAttr(name))}, name.str()};
}

std::vector<Port> ModelBuilder::parameterPorts() {
  std::vector<Port> ports;
  for (const Parameter &parameter : all)
    ports.push_back(parameterPort(parameter));
  return ports;
}

/// An empty function at the end of the module; the builder goes into it.
func::FuncOp ModelBuilder::function(StringRef name, ArrayRef<Port> arguments,
                                    ArrayRef<Port> results) {
  SmallVector<Type> argumentTypes, resultTypes;
  for (const Port &each : arguments)
    argumentTypes.push_back(each.type);
  for (const Port &each : results)
    resultTypes.push_back(each.type);
  b.setInsertionPointToEnd(module->getBody());
  auto result = b.create<func::FuncOp>(
      named(name), name, b.getFunctionType(argumentTypes, resultTypes));
  Block *body = result.addEntryBlock();
  for (auto [i, each] : llvm::enumerate(arguments)) {
    body->getArgument(i).setLoc(named(each.name));
    result.setArgAttrs(i, each.attributes);
  }
  for (auto [i, each] : llvm::enumerate(results))
    result.setResultAttrs(i, each.attributes);
  b.setInsertionPointToStart(body);
  return result;
}

LayerKind ModelBuilder::kindOf(int64_t layer, int64_t tokens) const {
  int64_t window = spec.window(layer);
  // A window at least as long as the sequence hides nothing.
  return {window < tokens ? window : 0, spec.attentionScale(layer)};
}

/// The name of the block for layers of `kind`.
std::string ModelBuilder::blockName(const Twine &base,
                                    const LayerKind &kind) const {
  std::string name = base.str();
  if (kind.window > 0)
    name += llvm::formatv(".window{0}", kind.window);
  if (spec.scaleAttentionByInverseLayer)
    name += llvm::formatv(".scale{0}",
                          std::llround(spec.attentionScale(0) / kind.scale));
  return name;
}

/// A private function whose first arguments are activations of `shape` and the
/// parameters of a layer.
func::FuncOp ModelBuilder::newBlock(StringRef name, ArrayRef<int64_t> shape,
                                    ArrayRef<Port> more,
                                    ArrayRef<Port> moreResults) {
  Port activations{tensor(shape, b.getF32Type()), {}, "x"};
  std::vector<Port> arguments = {activations}, results = {activations};
  for (const Parameter &each : ofLayer)
    arguments.push_back({tensor(each.shape, b.getF32Type()), {}, each.name});
  llvm::append_range(arguments, more);
  llvm::append_range(results, moreResults);
  func::FuncOp result = function(name, arguments, results);
  result.setPrivate();
  result->setAttr(graph::kBlockAttr, b.getUnitAttr());
  return result;
}

/// The scope of a block's body.
void ModelBuilder::defineLayer(Scope &scope, func::FuncOp block) const {
  for (auto [i, each] : llvm::enumerate(ofLayer))
    scope.define(each.name, block.getArgument(i + 1));
}

/// The block for layers of `kind` on activations of `shape`, made on first use.
func::FuncOp ModelBuilder::block(const LayerKind &kind, ArrayRef<int64_t> shape,
                                 bool random) {
  std::string name = blockName(random ? "layer" : "layer.logits", kind);
  if (auto made = module->lookupSymbol<func::FuncOp>(name))
    return made;

  OpBuilder::InsertionGuard guard(b);
  std::vector<Port> more;
  bool dropping = random && drops();
  if (dropping)
    for (const char *each : {"seed", "step", "offset"})
      more.push_back({scalar(b.getI64Type()), {}, each});
  func::FuncOp result = newBlock(name, shape, more, {});
  RandomState state;
  if (dropping) {
    auto last = result.getArguments().take_back(3);
    state = {last[0], last[1], last[2]};
  }
  Scope scope(b, spec, state);
  defineLayer(scope, result);
  Value y = family.layer(scope, result.getArgument(0), kind);
  b.create<func::ReturnOp>(result.getLoc(), y);
  return result;
}

/// Layers share a block and with it the streams of their random numbers; what
/// tells them apart is the high word of the seed.
Value ModelBuilder::layerSeed(Value seed, int64_t layer) {
  auto type = scalar(b.getI64Type());
  Value high = b.create<graph::ConstantOp>(
      seed.getLoc(), type,
      DenseIntElementsAttr::get(type, ArrayRef<int64_t>((layer + 1) << 32)));
  return Emitter(b, seed.getLoc()).add(seed, high);
}

/// tokens → what the head reads.
Value ModelBuilder::trunk(Scope &scope, Value tokens, RandomState random) {
  Value x = family.embed(scope, tokens);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    std::string prefix = layerPrefix(spec, layer);
    StringRef path = StringRef(prefix).drop_back(); // without the last dot
    SmallVector<Value> operands = {x};
    for (const Parameter &each : ofLayer)
      operands.push_back(scope.parameter(prefix + each.name));
    bool dropping = random.seed && drops();
    if (dropping)
      operands.append(
          {layerSeed(random.seed, layer), random.step, random.offset});
    func::FuncOp callee =
        block(kindOf(layer, recipe.batch.sequence), tensorType(x).getShape(),
              /*random=*/bool(random.seed));
    x = b.create<func::CallOp>(named(path), callee, operands).getResult(0);
  }
  return family.finish(scope, x);
}

void ModelBuilder::buildLoss() {
  auto ids =
      tensor({recipe.batch.micro, recipe.batch.sequence}, b.getI32Type());
  std::vector<Port> arguments = parameterPorts();
  arguments.push_back(port(graph::kInputAttr, "tokens", ids));
  arguments.push_back(port(graph::kInputAttr, "targets", ids));
  for (const char *each : {"seed", "step", "offset"})
    arguments.push_back(port(graph::kInputAttr, each, scalar(b.getI64Type())));
  Port sum = port(graph::kOutputAttr, "loss_sum", scalar(b.getF32Type()));
  func::FuncOp loss = function("loss", arguments, sum);

  auto inputs = loss.getArguments().drop_front(all.size());
  RandomState random{inputs[2], inputs[3], inputs[4]};
  Scope scope(b, spec, random);
  for (auto [i, each] : llvm::enumerate(all))
    scope.define(each.name, loss.getArgument(i));
  Value x = trunk(scope, inputs[0], random);
  Emitter e = scope.at("lm_head");
  int64_t tokens = ids.getNumElements();
  auto result = b.create<graph::LinearCrossEntropyOp>(
      e.location(), scalar(b.getF32Type()), e.reshape(x, {tokens, spec.hidden}),
      head(scope), e.reshape(inputs[1], {tokens}));
  b.create<func::ReturnOp>(loss.getLoc(), result.getLoss());
}

void ModelBuilder::buildLogits() {
  int64_t length = recipe.batch.sequence;
  std::vector<Port> arguments = parameterPorts();
  arguments.push_back(
      port(graph::kInputAttr, "tokens", tensor({1, length}, b.getI32Type())));
  Port result = port(graph::kOutputAttr, "logits",
                     tensor({1, length, spec.vocab}, b.getF32Type()));
  func::FuncOp logits = function("logits", arguments, result);
  Scope scope(b, spec, {});
  for (auto [i, each] : llvm::enumerate(all))
    scope.define(each.name, logits.getArgument(i));
  Value x = trunk(scope, logits.getArguments().back(), {});
  Emitter e = scope.at("lm_head");
  Value y = e.einsum("btk,vk->btv", x, head(scope));
  b.create<func::ReturnOp>(logits.getLoc(), y);
}

Value ModelBuilder::initial(Emitter &e, const Parameter &parameter, Value seed,
                            Value step) {
  auto type = tensor(parameter.shape, b.getF32Type());
  if (parameter.initializer != Initializer::Normal)
    return e.splat(parameter.initializer == Initializer::Ones ? 1 : 0, type);
  Value normal =
      b.create<graph::RandomOp>(e.location(), type, seed, step, Value(),
                                /*stream=*/0, graph::RandomKind::normal);
  return e.mul(normal, parameter.deviation);
}

// A parameter's seed is the run's plus its place in the list times 2^32, so
// that the numbers do not depend on how the work is divided. The seeds are
// data, not constants, each at the start of a row of 64 bytes where a buffer
// may begin: all parameters of one deviation then share one kernel.
void ModelBuilder::buildInit() {
  Port seedPort = port(graph::kInputAttr, "seed", tensor({1}, b.getI64Type()));
  func::FuncOp init = function("init", seedPort, parameterPorts());
  Emitter e(b, init.getLoc());
  RankedTensorType rows = tensor({int64_t(all.size()), 8}, b.getI64Type());
  Value shift = b.create<graph::ConstantOp>(
      init.getLoc(), rows, DenseIntElementsAttr::get(rows, int64_t(1) << 32));
  Value seeds = e.add(
      e.broadcastScalar(e.reshape(init.getArgument(0), {}), rows.getShape()),
      e.mul(e.iota(rows, 0), shift));
  Value step = e.zeros(scalar(b.getI64Type()));
  SmallVector<Value> results;
  for (auto [i, each] : llvm::enumerate(all)) {
    Emitter at(b, named(each.name));
    Value seed = e.reshape(e.slice(seeds, {int64_t(i), 0}, {1, 1}), {});
    results.push_back(initial(at, each, seed, step));
  }
  b.create<func::ReturnOp>(init.getLoc(), results);
}

OwningOpRef<ModuleOp> ModelBuilder::build(Mode mode) {
  if (mode == Mode::Train) {
    buildLoss();
    buildLogits();
  } else {
    buildInference();
  }
  buildInit();
  return std::move(module);
}

llvm::Expected<OwningOpRef<ModuleOp>> buildModel(MLIRContext &context,
                                                 const ModelSpec &spec,
                                                 const Recipe &recipe,
                                                 Mode mode) {
  if (Status status = checkRecipe(recipe, spec, mode); !status.ok())
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   status.message());
  return ModelBuilder(context, spec, recipe).build(mode);
}

} // namespace tessera::models
