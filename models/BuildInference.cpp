// Functions over a KV cache: prefill of a chunk of a prompt, and decode of one
// token for each sequence of a batch.
#include "dialects/graph/GraphSamplingOps.h"
#include "models/ModelBuilder.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

/// Not where logits are to have the bits of a training step, nor where each row
/// has factors of its own for the matrix that expands latents.
bool ModelBuilder::cachesLatents() const {
  const bool hasOwnFactors = spec.adapter && spec.adapter->slots() > 0 &&
                             spec.adapter->adapts(moduleNames(spec).latentUp);
  return spec.latent && !hasOwnFactors &&
         recipe.inference.numerics != recipe::Numerics::Training;
}

std::vector<CachePart> ModelBuilder::cacheParts(const LayerKind &kind) const {
  if (kind.recurrent)
    return {{"conv", &KvCache::inputs}, {"state", &KvCache::states}};
  constexpr CachePart all[] = {
      {"keys", &KvCache::keys},
      {"values", &KvCache::values, /*ofValues=*/true},
      {"key_scales", &KvCache::keyScales, false, /*isScales=*/true},
      {"value_scales", &KvCache::valueScales, true, true}};
  std::vector<CachePart> parts;
  for (const CachePart &each : all)
    if (!(each.ofValues && cachesLatents()) && (!each.isScales || hasScales()))
      parts.push_back(each);
  return parts;
}

/// A state for each running sequence of a recurrent layer, in f32.
static std::vector<Port>
recurrentState(OpBuilder &b, const StateSpaceSpec &mixer, int64_t slots) {
  NamedAttribute keep = b.getNamedAttr(graph::kKeepF32Attr, b.getUnitAttr());
  auto f32 = [&](ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, b.getF32Type());
  };
  return {
      {f32({slots, mixer.kernel - 1, mixer.channels()}), {keep}, "conv"},
      {f32({slots, mixer.heads, mixer.headDim, mixer.state}), {keep}, "state"}};
}

std::vector<Port> ModelBuilder::layerCaches(const LayerKind &kind,
                                            const CacheShape &shape) {
  if (kind.recurrent)
    return recurrentState(b, *spec.stateSpace, recipe.inference.batch);
  int64_t heads = spec.kvHeads, dim = spec.headDim;
  if (cachesLatents())
    heads = 1, dim = spec.latent->cacheWidth();
  else if (spec.latent)
    dim = spec.latent->paddedHeadDim();
  Type f32 = b.getF32Type(), element = hasScales() ? b.getI8Type() : f32;
  std::vector<Port> ports;
  for (const CachePart &each : cacheParts(kind))
    ports.push_back({tensor({shape.pages, recipe.inference.page, heads,
                             each.isScales ? 1 : dim},
                            each.isScales ? f32 : element),
                     {},
                     each.name});
  return ports;
}

/// The caches of all layers, in order.
std::vector<Port> ModelBuilder::cachePorts(const CacheShape &shape) {
  std::vector<Port> ports;
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const bool isRecurrent = spec.isRecurrent(layer);
    const StringRef prefix = isRecurrent ? "recurrent." : "cache.";
    for (const Port &each : layerCaches(kindOf(layer, shape.context), shape)) {
      std::string name = (prefix + each.name + "." + Twine(layer)).str();
      ports.push_back(port(graph::kStateAttr, name, each.type));
      llvm::append_range(ports.back().attributes, each.attributes);
      ports.back().attributes.push_back(b.getNamedAttr(
          graph::kRoleAttr,
          graph::RoleAttr::get(b.getContext(), isRecurrent
                                                   ? graph::Role::recurrent
                                                   : graph::Role::cache)));
      addLayer(ports.back(), layer);
    }
  }
  return ports;
}

/// The positions of the tokens of a run: slots, table, starts, lengths, and of
/// a model with recurrent layers states, the slot of each sequence.
std::vector<Port> ModelBuilder::cacheInputs(const CacheShape &shape) {
  Type i32 = b.getI32Type();
  int64_t pages = llvm::divideCeil(shape.context, recipe.inference.page);
  std::vector<Port> ports{
      port(graph::kInputAttr, "slots",
           tensor({shape.batch, shape.tokens}, i32)),
      port(graph::kInputAttr, "table", tensor({shape.batch, pages}, i32)),
      port(graph::kInputAttr, "starts", tensor({shape.batch}, i32)),
      port(graph::kInputAttr, "lengths", tensor({shape.batch}, i32))};
  if (spec.stateSpace)
    ports.push_back(
        port(graph::kInputAttr, "states", tensor({shape.batch}, i32)));
  return ports;
}

/// Logits per row that a request may change on the device, by a bias or a
/// penalty. A request that changes more samples on the host.
static constexpr int64_t kMostChanges = 1024;

/// Inputs that determine the token sampled for each row, as in graph.sample.
std::vector<Port> ModelBuilder::choiceInputs(int64_t batch) {
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  // Rounded up to whole vectors of words.
  int64_t words = llvm::alignTo(llvm::divideCeil(spec.vocab, 32), 16);
  int64_t changes = std::min(spec.vocab, kMostChanges);
  auto input = [&](const char *name, SmallVector<int64_t> shape, Type element) {
    return port(graph::kInputAttr, name, tensor(shape, element));
  };
  return {input("allowed", {batch, words}, i32),
          input("changed", {batch, changes}, i32),
          input("changes", {batch, changes, 4}, f32),
          input("options", {batch, 2}, f32), input("limits", {batch, 4}, i32)};
}

std::vector<Port> ModelBuilder::adapterInputs() {
  if (!spec.adapter)
    return {};
  return {port(graph::kInputAttr, "adapters",
               tensor({spec.adapter->slots() + 1}, b.getI32Type()))};
}

/// A cache with the positions of a run's tokens, in the order of cacheInputs.
static KvCache at(ValueRange inputs, int64_t context, const Recipe &recipe,
                  bool isRecurrent) {
  KvCache cache;
  if (isRecurrent)
    cache.sequences = inputs[4];
  cache.f32 = recipe.inference.numerics == recipe::Numerics::Training;
  cache.slots = inputs[0], cache.table = inputs[1];
  cache.starts = cache.queryStarts = inputs[2], cache.lengths = inputs[3];
  cache.context = context;
  return cache;
}

/// Positions of tokens [batch, tokens] whose sequences begin at `starts`.
static Value positionsFrom(Emitter &e, Value starts, RankedTensorType type) {
  return e.add(e.broadcast(starts, {0}, type.getShape()), e.iota(type, 1));
}

/// The block of `owner`'s layers. After activations and parameters it takes and
/// returns keys and values, and takes the cacheInputs and adapterInputs, and
/// where attention's queries start if it reads prompts.
func::FuncOp ModelBuilder::cachedBlock(StringRef owner, const LayerKind &kind,
                                       const CacheShape &shape) {
  std::string name = blockName("layer." + owner, kind);
  if (auto made = module->lookupSymbol<func::FuncOp>(name))
    return made;
  OpBuilder::InsertionGuard guard(b);
  std::vector<Port> caches = layerCaches(kind, shape), more = caches;
  std::vector<Port> adapters = adapterInputs(), positions = cacheInputs(shape);
  for (const std::vector<Port> &ports : {positions, adapters})
    for (const Port &each : ports)
      more.push_back({each.type, {}, each.name});
  if (prefillsPrompts(shape))
    more.push_back({tensor({shape.batch}, b.getI32Type()), {}, "query_starts"});
  func::FuncOp result = newBlock(
      name, kind, {shape.batch, shape.tokens, spec.hidden}, more, caches);
  auto last = result.getArguments().take_back(more.size());
  auto inputs = last.drop_front(caches.size());
  KvCache cache = at(inputs, shape.context, recipe, bool(spec.stateSpace));
  cache.holdsLatents = cachesLatents();
  const std::vector<CachePart> parts = cacheParts(kind);
  for (auto [part, argument] : llvm::zip(parts, last))
    cache.*part.value = argument;
  Scope scope(b, spec, {});
  Emitter e = scope.at("positions");
  cache.positions = positionsFrom(
      e, cache.starts, cast<RankedTensorType>(cache.slots.getType()));
  scope.cache = &cache;
  if (!adapters.empty())
    scope.adapters.offsets = inputs[positions.size()];
  if (prefillsPrompts(shape))
    cache.queryStarts = inputs.back();
  defineLayer(scope, kind, result);
  Value y = family.layer(scope, result.getArgument(0), kind);
  SmallVector<Value> returned = {y};
  for (const CachePart &part : parts)
    returned.push_back(cache.*part.value);
  b.create<func::ReturnOp>(result.getLoc(), returned);
  return result;
}

/// tokens → the input of the head; `caches` are replaced by the updated ones.
Value ModelBuilder::cachedTrunk(Scope &scope, StringRef owner,
                                const CacheShape &shape, Value tokens,
                                MutableArrayRef<Value> caches) {
  const KvCache &cache = *scope.cache;
  Value x = family.embed(scope, tokens);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    std::string prefix = layerPrefix(spec, layer);
    SmallVector<Value> operands = {x};
    LayerKind kind = kindOf(layer, shape.context);
    for (const Parameter &parameter : ofLayer(kind))
      operands.push_back(scope.parameter(prefix + parameter.name));
    auto own = caches.take_front(cacheParts(kind).size());
    caches = caches.drop_front(own.size());
    llvm::append_range(operands, own);
    operands.append({cache.slots, cache.table, cache.starts, cache.lengths});
    if (cache.sequences)
      operands.push_back(cache.sequences);
    if (Value offsets = scope.adapters.offsets)
      operands.push_back(offsets);
    if (prefillsPrompts(shape))
      operands.push_back(cache.queryStarts);
    func::FuncOp callee = cachedBlock(owner, kind, shape);
    func::CallOp call = callLayer(layer, callee, operands);
    x = call.getResult(0);
    llvm::copy(call.getResults().drop_front(), own.begin());
  }
  return family.finish(scope, x);
}

/// tokens i32 [batch, tokens] and their positions → logits f32 [batch, vocab]
/// of one token of each sequence (row `last` if there are several), and the
/// sampled token i32 [batch].
void ModelBuilder::buildCached(graph::Program kind, StringRef bucket,
                               const CacheShape &shape) {
  Type i32 = b.getI32Type();
  std::vector<Port> arguments = parameterPorts(), caches = cachePorts(shape);
  llvm::append_range(arguments, caches);
  arguments.push_back(port(graph::kInputAttr, "tokens",
                           tensor({shape.batch, shape.tokens}, i32)));
  llvm::append_range(arguments, cacheInputs(shape));
  const size_t adaptersAt = arguments.size();
  llvm::append_range(arguments, adapterInputs());
  bool chooses = shape.tokens > 1;
  if (chooses)
    arguments.push_back(
        port(graph::kInputAttr, "last", tensor({shape.batch}, i32)));
  size_t choiceAt = arguments.size();
  llvm::append_range(arguments, choiceInputs(shape.batch));
  std::vector<Port> results = caches;
  results.push_back(port(graph::kOutputAttr, "logits",
                         tensor({shape.batch, spec.vocab}, b.getF32Type())));
  results.push_back(
      port(graph::kOutputAttr, "token", tensor({shape.batch}, i32)));
  func::FuncOp result = program(kind, arguments, results, bucket);

  Scope scope(b, spec, {});
  defineParameters(scope, result);
  SmallVector<Value> state(
      result.getArguments().slice(all.size(), caches.size()));
  auto inputs = result.getArguments().take_front(choiceAt).drop_front(
      all.size() + caches.size());
  KvCache cache =
      at(inputs.drop_front(), shape.context, recipe, bool(spec.stateSpace));
  Emitter positions = scope.at("positions");
  cache.positions = positionsFrom(positions, cache.starts,
                                  cast<RankedTensorType>(inputs[0].getType()));
  // The first chunk of a sequence is its whole prompt (PagedModel.h).
  if (prefillsPrompts(shape)) {
    Value isFirst = positions.compare(cache.starts, graph::ComparePredicate::eq,
                                      positions.splatLike(0, cache.starts));
    cache.queryStarts = positions.select(isFirst, cache.lengths, cache.starts);
  }
  scope.cache = &cache;
  if (spec.adapter)
    scope.adapters.offsets = result.getArgument(adaptersAt);
  Value x = cachedTrunk(scope, result.getName(), shape, inputs[0], state);
  Emitter e = scope.at("lm_head");
  x = e.reshape(x, {shape.batch * shape.tokens, spec.hidden});
  if (chooses)
    x = e.embedding(x, inputs.back());
  SmallVector<Value> returned(state);
  Value logits =
      e.softCap(e.einsum("bk,vk->bv", x, head(scope)), spec.logitCap);
  SmallVector<Value> choice = {logits};
  llvm::append_range(choice, result.getArguments().drop_front(choiceAt));
  returned.push_back(logits);
  returned.push_back(
      b.create<graph::SampleOp>(scope.at("sample").location(), choice));
  b.create<func::ReturnOp>(result.getLoc(), returned);
}

void ModelBuilder::buildInference() {
  if (!spec.generates())
    return buildEncoder();
  int64_t context = inferenceContext(spec, recipe);
  int64_t perSequence = llvm::divideCeil(context, recipe.inference.page);
  int64_t pages = recipe.inference.pages ? recipe.inference.pages
                                         : perSequence * recipe.inference.batch;
  int64_t chunk = std::min(recipe.inference.chunk, context);
  for (int64_t tokens : prefillBuckets(spec, chunk))
    buildCached(graph::Program::prefill, ("_" + Twine(tokens)).str(),
                {1, tokens, context, pages});
  for (int64_t batch : decodeBuckets(recipe.inference.batch))
    buildCached(graph::Program::decode, ("_" + Twine(batch)).str(),
                {batch, 1, context, pages});
}

} // namespace tessera::models
