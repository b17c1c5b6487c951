// Builds the functions of a module, which are the same for every family. A
// FamilyBuilder supplies what differs.
#include "models/ModelBuilder.h"
#include "models/moe/Routing.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

Port ModelBuilder::parameterPort(const Parameter &parameter) {
  Type element = parameter.isNarrow ? Type(b.getBF16Type()) : b.getF32Type();
  Port result{tensor(parameter.shape, element), {}, parameter.name};
  result.attributes = {
      b.getNamedAttr(graph::kStateAttr, b.getStringAttr(parameter.name)),
      b.getNamedAttr(
          graph::kRoleAttr,
          graph::RoleAttr::get(b.getContext(), graph::Role::parameter))};
  auto mark = [&](StringRef attribute) {
    result.attributes.push_back(b.getNamedAttr(attribute, b.getUnitAttr()));
  };
  if (parameter.shape.size() >= 2)
    mark(graph::kDecayAttr);
  if (parameter.frozen)
    mark(graph::kFrozenAttr);
  if (parameter.keepF32)
    mark(graph::kKeepF32Attr);
  if (parameter.layer >= 0)
    addLayer(result, parameter.layer);
  return result;
}

void ModelBuilder::addLayer(Port &port, int64_t layer) {
  port.attributes.push_back(b.getNamedAttr(
      graph::kLayerAttr, graph::LayerAttr::get(b.getContext(), layer)));
}

Port ModelBuilder::port(StringRef attribute, StringRef name, Type type) {
  return {type, {b.getNamedAttr(attribute, b.getStringAttr(name))}, name.str()};
}

void ModelBuilder::defineParameters(Scope &scope, func::FuncOp program) {
  for (auto [i, each] : llvm::enumerate(all)) {
    Value value = program.getArgument(i);
    if (each.isNarrow)
      value = Emitter(b, named(each.name)).convert(value, b.getF32Type());
    scope.define(each.name, value);
  }
}

std::vector<Port> ModelBuilder::parameterPorts() {
  std::vector<Port> ports;
  for (const Parameter &parameter : all)
    ports.push_back(parameterPort(parameter));
  return ports;
}

/// Adds an empty function at the end of the module and moves the builder into
/// it.
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
  // At once: attributes of a function are one list.
  auto attributesOf = [&](ArrayRef<Port> ports) {
    SmallVector<DictionaryAttr> all;
    for (const Port &each : ports)
      all.push_back(b.getDictionaryAttr(each.attributes));
    return all;
  };
  for (auto [i, each] : llvm::enumerate(arguments))
    body->getArgument(i).setLoc(named(each.name));
  result.setAllArgAttrs(attributesOf(arguments));
  result.setAllResultAttrs(attributesOf(results));
  b.setInsertionPointToStart(body);
  return result;
}

func::FuncOp ModelBuilder::program(graph::Program kind,
                                   ArrayRef<Port> arguments,
                                   ArrayRef<Port> results, StringRef bucket) {
  func::FuncOp result = function((graph::stringifyProgram(kind) + bucket).str(),
                                 arguments, results);
  result->setAttr(graph::kProgramAttr,
                  graph::ProgramAttr::get(b.getContext(), kind));
  return result;
}

graph::LayerAttr ModelBuilder::layerAttr(int64_t layer) {
  return graph::LayerAttr::get(b.getContext(), layer);
}

func::CallOp ModelBuilder::callLayer(int64_t layer, func::FuncOp block,
                                     ValueRange operands) {
  std::string path = layerPrefix(spec, layer);
  path.pop_back(); // the last dot
  auto call = b.create<func::CallOp>(named(path), block, operands);
  call->setAttr(graph::kLayerAttr, layerAttr(layer));
  return call;
}

LayerKind ModelBuilder::kindOf(int64_t layer, int64_t tokens) const {
  if (spec.isRecurrent(layer)) {
    LayerKind kind;
    kind.sparse = spec.isSparse(layer);
    kind.recurrent = true;
    return kind;
  }
  int64_t window = spec.window(layer);
  // A window at least as long as the sequence has no effect.
  return {window < tokens ? window : 0, spec.attentionScale(layer),
          spec.isSparse(layer), spec.localRope && window > 0,
          spec.rotates(layer)};
}

/// The name of the block for layers of `kind`.
std::string ModelBuilder::blockName(const Twine &base,
                                    const LayerKind &kind) const {
  std::string name = base.str();
  if (kind.sparse)
    name += ".moe";
  if (kind.recurrent)
    return name + ".recurrent";
  if (kind.window > 0)
    name += llvm::formatv(".window{0}", kind.window);
  else if (kind.local)
    name += ".local";
  if (spec.rope && !kind.rotates)
    name += ".unrotated";
  if (spec.scaleAttentionByInverseLayer)
    name += llvm::formatv(".scale{0}",
                          std::llround(spec.attentionScale(0) / kind.scale));
  return name;
}

/// A private function whose first arguments are activations of `shape` and the
/// parameters of a layer.
func::FuncOp ModelBuilder::newBlock(StringRef name, const LayerKind &kind,
                                    ArrayRef<int64_t> shape,
                                    ArrayRef<Port> more,
                                    ArrayRef<Port> moreResults) {
  Port activations{tensor(shape, b.getF32Type()), {}, "x"};
  std::vector<Port> arguments = {activations}, results = {activations};
  for (const Parameter &each : ofLayer(kind)) {
    arguments.push_back({tensor(each.shape, b.getF32Type()), {}, each.name});
    if (each.keepF32)
      arguments.back().attributes.push_back(
          b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr()));
  }
  llvm::append_range(arguments, more);
  llvm::append_range(results, moreResults);
  func::FuncOp result = function(name, arguments, results);
  result.setPrivate();
  result->setAttr(graph::kBlockAttr, b.getUnitAttr());
  return result;
}

/// The scope of a block's body.
void ModelBuilder::defineLayer(Scope &scope, const LayerKind &kind,
                               func::FuncOp block) const {
  for (auto [i, each] : llvm::enumerate(ofLayer(kind)))
    scope.define(each.name, block.getArgument(i + 1));
}

/// The block's function. Arguments after activations and parameters: documents,
/// if they are separate, the state of random numbers, if it has dropout, and
/// the loads of its experts, if its balance loss covers more than its own
/// tokens. Results after activations: the router's penalty, loads and sums, as
/// far as requested.
func::FuncOp ModelBuilder::startBlock(StringRef name, const LayerKind &kind,
                                      ArrayRef<int64_t> shape, Purpose purpose,
                                      bool dropping) {
  std::vector<Port> more, moreResults;
  if (separates() && purpose != Purpose::Logits) {
    SmallVector<const char *> names{"first", "positions"};
    if (hasBidirectionalPrompts())
      names.push_back("prompt_ends");
    for (const char *each : names)
      more.push_back({tensor(shape.take_front(2), b.getI32Type()), {}, each});
  }
  if (dropping)
    for (const char *each : {"seed", "step", "offset"})
      more.push_back({scalar(b.getI64Type()), {}, each});
  if (!kind.sparse || purpose == Purpose::Logits)
    return newBlock(name, kind, shape, more, moreResults);
  Type f32 = b.getF32Type();
  Port loads{tensor({spec.moe->experts}, f32), {}, "loads"};
  if (purpose == Purpose::Loss && needsLoads())
    more.push_back(loads);
  if (purpose == Purpose::Loss && hasPenalty())
    moreResults.push_back({scalar(f32), {}, "penalty"});
  NamedAttribute metric = b.getNamedAttr(graph::kMetricAttr, b.getUnitAttr());
  moreResults.push_back({loads.type, {metric}, loads.name});
  if (purpose == Purpose::Loss)
    moreResults.push_back({tensor({routerSums}, f32), {metric}, "sums"});
  return newBlock(name, kind, shape, more, moreResults);
}

/// The block for layers of `kind` on activations of `shape`, made on first use.
func::FuncOp ModelBuilder::block(const LayerKind &kind, ArrayRef<int64_t> shape,
                                 Purpose purpose) {
  std::string name = blockName(purpose == Purpose::Loss     ? "layer"
                               : purpose == Purpose::Logits ? "layer.logits"
                                                            : "layer.loads",
                               kind);
  if (auto made = module->lookupSymbol<func::FuncOp>(name))
    return made;

  OpBuilder::InsertionGuard guard(b);
  bool dropping = purpose != Purpose::Logits && drops();
  func::FuncOp result = startBlock(name, kind, shape, purpose, dropping);
  auto last = result.getArguments().drop_front(1 + ofLayer(kind).size());
  Documents documents;
  if (separates() && purpose != Purpose::Logits) {
    documents = {last[0], last[1],
                 hasBidirectionalPrompts() ? last[2] : Value()};
    last = last.drop_front(documents.all().size());
  }
  RandomState state;
  if (dropping)
    state = {last[0], last[1], last[2]};
  Scope scope(b, spec, state);
  scope.documents = documents;
  defineLayer(scope, kind, result);
  RouterScope router{recipe.moe, {}, recipe.batch.tokens()};
  router.countsOnly = purpose == Purpose::Loads;
  if (kind.sparse && purpose == Purpose::Loss && needsLoads())
    router.load = last.back();
  if (purpose != Purpose::Logits)
    scope.router = &router;
  SmallVector<Value> results{family.layer(scope, result.getArgument(0), kind)};
  for (Value each : {router.penalty, router.counts, router.sums})
    if (each)
      results.push_back(each);
  b.create<func::ReturnOp>(result.getLoc(), results);
  return result;
}

/// `count` seeds that differ in their high word: row i is the seed plus
/// (first + i) × 2^32. Seeds are data, not constants, each in its own row of 64
/// bytes (the alignment of a buffer), so that what differs in nothing else
/// shares its kernels.
Value ModelBuilder::seedRows(Emitter &e, Value seed, int64_t count,
                             int64_t first) {
  RankedTensorType rows = tensor({count, 8}, b.getI64Type());
  auto splat = [&](int64_t value) {
    return b.create<graph::ConstantOp>(e.location(),
                                       DenseIntElementsAttr::get(rows, value));
  };
  Value number = e.iota(rows, 0);
  if (first != 0)
    number = e.add(number, splat(first));
  return e.add(e.broadcastScalar(seed, rows.getShape()),
               e.mul(number, splat(int64_t(1) << 32)));
}

static Value seedOf(Emitter &e, Value rows, int64_t row) {
  return e.reshape(e.slice(rows, {row, 0}, {1, 1}), {});
}

/// Which layer's it is cannot be seen in what reads it: a kernel may have ops
/// of two layers.
Value ModelBuilder::layerSeed(Emitter &e, Value seeds, int64_t layer) {
  Value seed = seedOf(e, seeds, layer);
  Operation *reshape = seed.getDefiningOp();
  for (Operation *op : {reshape, reshape->getOperand(0).getDefiningOp()})
    op->setAttr(graph::kLayerAttr, layerAttr(layer));
  return seed;
}

/// tokens → the input of the head. `loads` [layers with experts, experts] if
/// the blocks take them.
Value ModelBuilder::trunk(Scope &scope, Value tokens, RandomState random,
                          Purpose purpose, Value loads, Routed &routed) {
  Value x = family.embed(scope, tokens);
  // Layers share a block and its random streams. The first seed is the
  // embedding's.
  Value seeds;
  if (random.seed && drops()) {
    Emitter e(b, random.seed.getLoc());
    seeds = seedRows(e, random.seed, spec.layers, /*first=*/1);
  }
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    std::string prefix = layerPrefix(spec, layer);
    StringRef path = StringRef(prefix).drop_back(); // without the last dot
    LayerKind kind = kindOf(layer, recipe.batch.sequence);
    SmallVector<Value> operands = {x};
    for (const Parameter &each : ofLayer(kind))
      operands.push_back(scope.parameter(prefix + each.name));
    llvm::append_range(operands, scope.documents.all());
    if (seeds) {
      Emitter e(b, random.seed.getLoc());
      operands.append({layerSeed(e, seeds, layer), random.step, random.offset});
    }
    if (kind.sparse && loads) {
      Emitter e = scope.at(path);
      int64_t row = static_cast<int64_t>(routed.counts.size()),
              experts = spec.moe->experts;
      operands.push_back(
          e.reshape(e.slice(loads, {row, 0}, {1, experts}), {experts}));
    }
    func::FuncOp callee = block(kind, tensorType(x).getShape(), purpose);
    func::CallOp call = callLayer(layer, callee, operands);
    x = call.getResult(0);
    if (!kind.sparse || purpose == Purpose::Logits)
      continue;
    ValueRange left = call.getResults().drop_front();
    if (purpose == Purpose::Loss && hasPenalty()) {
      routed.penalties.push_back(left.front());
      left = left.drop_front();
    }
    routed.counts.push_back(left.front());
    if (purpose == Purpose::Loss)
      routed.sums.push_back(left.back());
  }
  return family.finish(scope, x);
}

void ModelBuilder::buildLogits() {
  int64_t length = recipe.batch.sequence;
  std::vector<Port> arguments = parameterPorts();
  arguments.push_back(
      port(graph::kInputAttr, "tokens", tensor({1, length}, b.getI32Type())));
  Port result = port(graph::kOutputAttr, "logits",
                     tensor({1, length, spec.vocab}, b.getF32Type()));
  func::FuncOp logits = program(graph::Program::logits, arguments, result);
  Scope scope(b, spec, {});
  defineParameters(scope, logits);
  Routed routed;
  Value x = trunk(scope, logits.getArguments().back(), {}, Purpose::Logits, {},
                  routed);
  Emitter e = scope.at("lm_head");
  Value y = e.softCap(e.einsum("btk,vk->btv", x, head(scope)), spec.logitCap);
  b.create<func::ReturnOp>(logits.getLoc(), y);
}

Value ModelBuilder::initial(Emitter &e, const Parameter &parameter, Value seed,
                            Value step) {
  auto type = tensor(parameter.shape, b.getF32Type());
  auto random = [&](graph::RandomKind kind) -> Value {
    return b.create<graph::RandomOp>(e.location(), type, seed, step, Value(),
                                     /*stream=*/0, kind);
  };
  switch (parameter.initializer) {
  case Initializer::Normal:
    return e.mul(random(graph::RandomKind::normal), parameter.deviation);
  case Initializer::Ones:
    return e.splat(1, type);
  case Initializer::Zeros:
    return e.zeros(type);
  case Initializer::Uniform:
    return e.add(
        e.mul(random(graph::RandomKind::uniform), 2 * parameter.deviation),
        -parameter.deviation);
  case Initializer::LogOfIndex: {
    Value index = e.iota(type.clone(b.getI32Type()), 0);
    return e.unary<graph::LogOp>(
        e.add(e.convert(index, type.getElementType()), 1.0));
  }
  case Initializer::StepBias: {
    const double low = std::log(parameter.limits.first),
                 high = std::log(parameter.limits.second);
    Value d = e.exp(
        e.add(e.mul(random(graph::RandomKind::uniform), high - low), low));
    // log(exp(d) - 1)
    return e.add(d, e.unary<graph::LogOp>(e.add(e.neg(e.exp(e.neg(d))), 1.0)));
  }
  }
  llvm_unreachable("every initializer is built");
}

// A parameter's seed depends on its index in the list alone, so that initial
// values do not depend on how the work is divided.
void ModelBuilder::buildInit() {
  Port seedPort = port(graph::kInputAttr, "seed", tensor({1}, b.getI64Type()));
  func::FuncOp init = program(graph::Program::init, seedPort, parameterPorts());
  Emitter e(b, init.getLoc());
  Value seeds = seedRows(e, e.reshape(init.getArgument(0), {}),
                         static_cast<int64_t>(all.size()), /*first=*/0);
  Value step = e.zeros(scalar(b.getI64Type()));
  SmallVector<Value> results;
  for (auto [i, each] : llvm::enumerate(all)) {
    Emitter at(b, named(each.name));
    Value value =
        initial(at, each, seedOf(e, seeds, static_cast<int64_t>(i)), step);
    results.push_back(each.isNarrow ? at.convert(value, b.getBF16Type())
                                    : value);
  }
  b.create<func::ReturnOp>(init.getLoc(), results);
}

OwningOpRef<ModuleOp> ModelBuilder::build(Mode mode) {
  if (mode == Mode::Train) {
    buildLoss();
    if (needsLoads() || whitens())
      buildPrepareStep();
    if (spec.moe || !isOfTokens())
      buildFinishStep();
    if (!isReward())
      buildLogits();
  } else if (mode == Mode::Calibrate) {
    buildCalibrate();
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
  Recipe own = recipe;
  // A value head is of training alone.
  if (mode != Mode::Train)
    own.policy.advantages = recipe::Advantages::Rollout;
  return ModelBuilder(context, spec, own).build(mode);
}

} // namespace tessera::models
