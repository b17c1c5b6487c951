// Functions of a batch of whole sequences: an encoder gives each an embedding,
// a reward model or a cross-encoder a score.
#include "models/ModelBuilder.h"

#include <limits>

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

static int64_t pageOf(const Recipe &recipe, const EncodeBucket &bucket) {
  return std::min(recipe.inference.page, bucket.tokens);
}

/// The block of `owner`'s layers, which takes the sequences' lengths after
/// activations and parameters.
func::FuncOp ModelBuilder::encoderBlock(StringRef owner, const LayerKind &kind,
                                        const EncodeBucket &bucket) {
  std::string name = blockName("layer." + owner, kind);
  if (auto made = module->lookupSymbol<func::FuncOp>(name))
    return made;
  OpBuilder::InsertionGuard guard(b);
  Port lengths{tensor({bucket.batch}, b.getI32Type()), {}, "lengths"};
  func::FuncOp result = newBlock(
      name, kind, {bucket.batch, bucket.tokens, spec.hidden}, lengths, {});
  WholeSequences whole{result.getArguments().back(), pageOf(recipe, bucket),
                       /*isCausal=*/!spec.isEncoder(),
                       inferenceContext(spec, recipe)};
  Scope scope(b, spec, {});
  scope.whole = &whole;
  defineLayer(scope, kind, result);
  b.create<func::ReturnOp>(result.getLoc(),
                           family.layer(scope, result.getArgument(0), kind));
  return result;
}

/// Mask of tokens that are not padding, i1 in the shape of `x` [batch, tokens,
/// hidden].
static Value present(Emitter &e, Value x, Value lengths) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  auto ids = RankedTensorType::get(shape.drop_back(), e.builder().getI32Type());
  Value mask = e.compare(
      e.iota(ids, 1), graph::ComparePredicate::lt,
      e.broadcast(lengths, {0}, tensorType(x).getShape().drop_back()));
  return e.broadcast(mask, {0, 1}, shape);
}

/// The number of tokens of each sequence, in the shape of `sums` [batch,
/// hidden]; 1 for empty rows, to avoid dividing by zero.
static Value counts(Emitter &e, Value sums, Value lengths) {
  Value count = e.convert(lengths, tensorType(sums).getElementType());
  count = e.max(count, e.splatLike(1, count));
  return e.broadcastFirst(count, tensorType(sums).getShape());
}

/// x [batch, tokens, hidden] → [batch, hidden].
static Value pool(Emitter &e, Value x, Value lengths, Pooling pooling) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  if (pooling == Pooling::Cls)
    return e.reshape(e.slice(x, {0, 0, 0}, {shape[0], 1, shape[2]}),
                     {shape[0], shape[2]});
  const bool largest = pooling == Pooling::Max;
  double nothing = largest ? -std::numeric_limits<double>::infinity() : 0.0;
  x = e.select(present(e, x, lengths), x, e.splatLike(nothing, x));
  if (largest)
    return e.reduce(x, graph::ReduceKind::max, {1});
  Value sums = e.sum(x, {1}), count = counts(e, sums, lengths);
  if (pooling == Pooling::MeanSqrt)
    count = e.unary<graph::SqrtOp>(count);
  return e.div(sums, count);
}

/// Like torch.nn.functional.normalize: a zero vector stays zero.
static Value unit(Emitter &e, Value x) {
  Value length = e.unary<graph::SqrtOp>(e.sumLast(e.mul(x, x)));
  length = e.max(length, e.splatLike(1e-12, length));
  return e.div(x, e.broadcastFirst(length, tensorType(x).getShape()));
}

Value ModelBuilder::pooled(Emitter &e, Value x, Value lengths) {
  Value y = pool(e, x, lengths, recipe.inference.pooling);
  return recipe.inference.normalize == Normalize::L2 ? unit(e, y) : y;
}

/// tokens → the input of the pooling or the head.
Value ModelBuilder::wholeTrunk(Scope &scope, StringRef owner,
                               const EncodeBucket &bucket, Value tokens,
                               Value lengths) {
  Value x = family.embed(scope, tokens);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const LayerKind kind = kindOf(layer, bucket.tokens);
    std::string prefix = layerPrefix(spec, layer);
    SmallVector<Value> operands = {x};
    for (const Parameter &each : ofLayer(kind))
      operands.push_back(scope.parameter(prefix + each.name));
    operands.push_back(lengths);
    func::FuncOp callee = encoderBlock(owner, kind, bucket);
    x = callLayer(layer, callee, operands).getResult(0);
  }
  return family.finish(scope, x);
}

/// The score of a cross-encoder, as BertForSequenceClassification has it: of
/// the first token of x [batch, tokens, hidden] → [batch, 1].
static Value firstScores(Scope &scope, Value x) {
  Emitter e = scope.at("pooler");
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value y = e.slice(x, {0, 0, 0}, {shape[0], 1, shape[2]});
  y = e.unary<graph::TanhOp>(linear(scope, y, "pooler.dense", true));
  return e.reshape(linear(scope, y, "classifier", true), {shape[0], 1});
}

/// tokens i32 [batch, tokens], of which row b has lengths[b] → embeddings f32
/// [batch, hidden], or scores f32 [batch, 1]. Rows of length 0 have undefined
/// results. A cross-encoder's row b is a pair, whose second text begins at
/// second_begins[b].
void ModelBuilder::buildEmbed(const EncodeBucket &bucket) {
  Type i32 = b.getI32Type();
  std::vector<Port> arguments = parameterPorts();
  arguments.push_back(port(graph::kInputAttr, "tokens",
                           tensor({bucket.batch, bucket.tokens}, i32)));
  arguments.push_back(
      port(graph::kInputAttr, "lengths", tensor({bucket.batch}, i32)));
  const bool isPair = spec.isEncoder() && spec.hasScore;
  if (isPair)
    arguments.push_back(
        port(graph::kInputAttr, "second_begins", tensor({bucket.batch}, i32)));
  Port result = port(
      graph::kOutputAttr, spec.hasScore ? "scores" : "embeddings",
      tensor({bucket.batch, spec.hasScore ? 1 : spec.hidden}, b.getF32Type()));
  func::FuncOp embed =
      program(graph::Program::embed, arguments, result,
              ("_" + Twine(bucket.batch) + "x" + Twine(bucket.tokens)).str());
  Scope scope(b, spec, {});
  for (auto [i, each] : llvm::enumerate(all))
    scope.define(each.name, embed.getArgument(i));
  Value tokens = embed.getArgument(all.size()),
        lengths = embed.getArgument(all.size() + 1);
  if (isPair)
    scope.secondBegins = embed.getArguments().back();
  Value x = wholeTrunk(scope, embed.getName(), bucket, tokens, lengths);
  Emitter e = scope.at("pooling");
  Value y = isPair          ? firstScores(scope, x)
            : spec.hasScore ? lastScores(scope, x, lengths)
                            : pooled(e, x, lengths);
  b.create<func::ReturnOp>(embed.getLoc(), y);
}

void ModelBuilder::buildEncoder() {
  for (const EncodeBucket &bucket : encodeBuckets(spec, recipe))
    buildEmbed(bucket);
}

} // namespace tessera::models
