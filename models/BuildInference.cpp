// Functions that go on from what a cache of keys and values holds: a chunk of a
// prompt, and one token for each sequence of a batch.
#include "models/ModelBuilder.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

static std::string cacheName(StringRef what, int64_t layer) {
  return ("cache." + what + "." + Twine(layer)).str();
}

RankedTensorType ModelBuilder::cacheType(const CacheShape &shape) {
  return tensor(
      {shape.pages, recipe.inference.page, spec.kvHeads, spec.headDim},
      b.getF32Type());
}

/// The caches of all layers: keys, then values, of each.
std::vector<Port> ModelBuilder::cachePorts(const CacheShape &shape) {
  std::vector<Port> ports;
  for (int64_t layer = 0; layer < spec.layers; ++layer)
    for (const char *what : {"keys", "values"}) {
      std::string name = cacheName(what, layer);
      ports.push_back(port(graph::kStateAttr, name, cacheType(shape)));
      ports.back().attributes.push_back(b.getNamedAttr(
          graph::kRoleAttr,
          graph::RoleAttr::get(b.getContext(), graph::Role::cache)));
    }
  return ports;
}

/// What says where the tokens of a run stand: slots, table, starts, lengths.
std::vector<Port> ModelBuilder::cacheInputs(const CacheShape &shape) {
  Type i32 = b.getI32Type();
  int64_t pages = llvm::divideCeil(shape.context, recipe.inference.page);
  return {port(graph::kInputAttr, "slots",
               tensor({shape.batch, shape.tokens}, i32)),
          port(graph::kInputAttr, "table", tensor({shape.batch, pages}, i32)),
          port(graph::kInputAttr, "starts", tensor({shape.batch}, i32)),
          port(graph::kInputAttr, "lengths", tensor({shape.batch}, i32))};
}

/// Positions of tokens [batch, tokens] whose sequences begin at `starts`.
static Value positionsFrom(Emitter &e, Value starts, RankedTensorType type) {
  return e.add(e.broadcast(starts, {0}, type.getShape()), e.iota(type, 1));
}

/// The block of `owner`'s layers: besides activations and parameters it takes
/// and gives keys and values, and takes what cacheInputs has.
func::FuncOp ModelBuilder::cachedBlock(StringRef owner, const LayerKind &kind,
                                       const CacheShape &shape) {
  std::string name = blockName("layer." + owner, kind);
  if (auto made = module->lookupSymbol<func::FuncOp>(name))
    return made;
  OpBuilder::InsertionGuard guard(b);
  std::vector<Port> caches = {{cacheType(shape), {}, "keys"},
                              {cacheType(shape), {}, "values"}},
                    more = caches;
  for (Port &each : cacheInputs(shape))
    more.push_back({each.type, {}, each.name});
  func::FuncOp result = newBlock(
      name, kind, {shape.batch, shape.tokens, spec.hidden}, more, caches);
  auto last = result.getArguments().take_back(more.size());
  KvCache cache{last[0], last[1], {},      last[2],
                last[3], last[4], last[5], shape.context};
  Scope scope(b, spec, {});
  Emitter e = scope.at("positions");
  cache.positions =
      positionsFrom(e, cache.starts, cast<RankedTensorType>(last[2].getType()));
  scope.cache = &cache;
  defineLayer(scope, kind, result);
  Value y = family.layer(scope, result.getArgument(0), kind);
  b.create<func::ReturnOp>(result.getLoc(),
                           ValueRange{y, cache.keys, cache.values});
  return result;
}

/// tokens → what the head reads; `caches` become what the layers make of them.
Value ModelBuilder::cachedTrunk(Scope &scope, StringRef owner,
                                const CacheShape &shape, Value tokens,
                                MutableArrayRef<Value> caches) {
  const KvCache &cache = *scope.cache;
  Value x = family.embed(scope, tokens);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    std::string prefix = layerPrefix(spec, layer);
    SmallVector<Value> operands = {x};
    LayerKind kind = kindOf(layer, shape.context);
    for (const Parameter &each : ofLayer(kind))
      operands.push_back(scope.parameter(prefix + each.name));
    operands.append({caches[2 * layer], caches[2 * layer + 1], cache.slots,
                     cache.table, cache.starts, cache.lengths});
    func::FuncOp callee = cachedBlock(owner, kind, shape);
    auto call = b.create<func::CallOp>(named(StringRef(prefix).drop_back()),
                                       callee, operands);
    x = call.getResult(0);
    caches[2 * layer] = call.getResult(1);
    caches[2 * layer + 1] = call.getResult(2);
  }
  return family.finish(scope, x);
}

/// tokens i32 [batch, tokens] and where they stand → logits f32 [batch, vocab]
/// of one token of each sequence: row `last` of all tokens, if there are
/// several.
void ModelBuilder::buildCached(StringRef name, const CacheShape &shape) {
  Type i32 = b.getI32Type();
  std::vector<Port> arguments = parameterPorts(), caches = cachePorts(shape);
  llvm::append_range(arguments, caches);
  arguments.push_back(port(graph::kInputAttr, "tokens",
                           tensor({shape.batch, shape.tokens}, i32)));
  llvm::append_range(arguments, cacheInputs(shape));
  bool chooses = shape.tokens > 1;
  if (chooses)
    arguments.push_back(
        port(graph::kInputAttr, "last", tensor({shape.batch}, i32)));
  std::vector<Port> results = caches;
  results.push_back(port(graph::kOutputAttr, "logits",
                         tensor({shape.batch, spec.vocab}, b.getF32Type())));
  func::FuncOp result = function(name, arguments, results);

  Scope scope(b, spec, {});
  for (auto [i, each] : llvm::enumerate(all))
    scope.define(each.name, result.getArgument(i));
  SmallVector<Value> state(
      result.getArguments().slice(all.size(), caches.size()));
  auto inputs = result.getArguments().drop_front(all.size() + caches.size());
  KvCache cache{{},        {},        {},        inputs[1],
                inputs[2], inputs[3], inputs[4], shape.context};
  Emitter places = scope.at("positions");
  cache.positions = positionsFrom(places, cache.starts,
                                  cast<RankedTensorType>(inputs[0].getType()));
  scope.cache = &cache;
  Value x = cachedTrunk(scope, name, shape, inputs[0], state);
  Emitter e = scope.at("lm_head");
  x = e.reshape(x, {shape.batch * shape.tokens, spec.hidden});
  if (chooses)
    x = e.embedding(x, inputs.back());
  SmallVector<Value> returned(state);
  returned.push_back(
      e.softCap(e.einsum("bk,vk->bv", x, head(scope)), spec.logitCap));
  b.create<func::ReturnOp>(result.getLoc(), returned);
}

void ModelBuilder::buildInference() {
  if (spec.isEncoder())
    return buildEncoder();
  int64_t context = inferenceContext(spec, recipe);
  int64_t perSequence = llvm::divideCeil(context, recipe.inference.page);
  int64_t pages = recipe.inference.pages ? recipe.inference.pages
                                         : perSequence * recipe.inference.batch;
  int64_t chunk = std::min(recipe.inference.chunk, context);
  CacheShape prefill{1, chunk, context, pages};
  buildCached(("prefill_" + Twine(chunk)).str(), prefill);
  for (int64_t batch : decodeBuckets(recipe.inference.batch))
    buildCached(("decode_" + Twine(batch)).str(), {batch, 1, context, pages});
}

} // namespace tessera::models
