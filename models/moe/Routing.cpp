// Routers: scores, choices and auxiliary losses.
#include "models/moe/Routing.h"

#include "models/moe/Router.h"
#include "runtime/train/Router.h"

#include <limits>

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::shapeOf;
using tessera::graph::tensorType;

namespace tessera::models {

static RankedTensorType i32Tensor(Emitter &e, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, e.builder().getI32Type());
}

/// Divides [..., n] by its sums along the last dimension.
static Value overSum(Emitter &e, Value x) {
  // As in the reference; it only matters if all sigmoids are zero.
  constexpr double nothing = 1e-20;
  Value sum = e.add(e.sumLast(x), nothing);
  return e.div(x, e.broadcastFirst(sum, shapeOf(x)));
}

/// Scores of experts outside of the token's best groups become −∞.
static Value withinGroups(Emitter &e, const MoeSpec &moe, Value scores) {
  int64_t tokens = shapeOf(scores)[0], size = moe.experts / moe.groups;
  Value grouped = e.reshape(scores, {tokens, moe.groups, size});
  Value best = e.sumLast(e.pick(grouped, e.topK(grouped, moe.groupBest)));
  Value chosen = e.topK(best, moe.chosenGroups);
  // [tokens, groups, chosen]: whether group g is the j-th choice.
  SmallVector<int64_t> shape{tokens, moe.groups, moe.chosenGroups};
  Value named = e.compare(e.broadcast(chosen, {0, 2}, shape),
                          ComparePredicate::eq, e.iota(i32Tensor(e, shape), 1));
  Value count = e.sumLast(e.convert(named, e.builder().getI32Type()));
  Value isChosen =
      e.compare(count, ComparePredicate::gt, e.zeros(tensorType(count)));
  Value none = e.splatLike(-std::numeric_limits<double>::infinity(), grouped);
  return e.reshape(
      e.select(e.broadcastFirst(isChosen, shapeOf(grouped)), grouped, none),
      shapeOf(scores));
}

/// What `sites` of random numbers a layer has besides those of its family.
constexpr int64_t noiseSite = 100;

/// Normal noise on logits [tokens, experts], so that tokens try other experts
/// (Shazeer et al. 2017, with one deviation for all).
static Value withNoise(const Scope &scope, Emitter &e, Value logits,
                       int64_t sequences) {
  if (!scope.router || scope.router->recipe.noise == 0)
    return logits;
  ArrayRef<int64_t> shape = shapeOf(logits);
  Value noise =
      scope.noise(e, {sequences, shape[0] / sequences, shape[1]}, noiseSite);
  return e.add(logits,
               e.mul(e.reshape(noise, shape), scope.router->recipe.noise));
}

RouterChoice chooseExperts(const Scope &scope, Value x, int64_t sequences) {
  const MoeSpec &moe = *scope.spec.moe;
  std::string name(expertNames(scope.spec).router);
  Emitter e = scope.at(name);
  RouterChoice choice;
  Value logits = e.einsum("tk,ek->te", x, scope.parameter(name + ".weight"));
  if (moe.routerBias)
    logits = e.add(logits, e.broadcastLast(scope.parameter(name + ".bias"),
                                           shapeOf(logits)));
  choice.logits = withNoise(scope, e, logits, sequences);
  choice.scores = moe.score == RouterScore::Softmax
                      ? e.unary<graph::SoftmaxOp>(choice.logits)
                      : e.unary<graph::SigmoidOp>(choice.logits);
  Value wanted = choice.scores;
  if (moe.selectionBias) {
    Value bias = scope.parameter(name + ".e_score_correction_bias");
    wanted = e.add(wanted, e.broadcastLast(bias, shapeOf(wanted)));
  }
  if (moe.groups > moe.chosenGroups)
    wanted = withinGroups(e, moe, wanted);
  choice.experts = e.topK(wanted, moe.chosen);
  choice.weights = e.pick(choice.scores, choice.experts);
  if (moe.normalize)
    choice.weights = overSum(e, choice.weights);
  if (moe.scale != 1.0)
    choice.weights = e.mul(choice.weights, moe.scale);
  return choice;
}

Value keepWithinCapacity(Emitter &e, const MoeSpec &moe,
                         const recipe::Recipe::Moe &recipe, int64_t sequences,
                         RouterChoice &choice) {
  ArrayRef<int64_t> shape = shapeOf(choice.experts);
  int64_t tokens = shape[0] / sequences, entries = tokens * moe.chosen;
  auto f32 = RankedTensorType::get({}, e.builder().getF32Type());
  auto even = static_cast<double>(entries) / static_cast<double>(moe.experts);
  double room = std::ceil(recipe.capacity * even);
  // A token chooses an expert at most once.
  if (recipe.capacity == 0 || room >= static_cast<double>(tokens))
    return e.zeros(f32);
  Value ids = e.reshape(choice.experts, {sequences, entries});
  Value scores;
  if (recipe.drop == recipe::DropPolicy::Probability)
    scores = e.reshape(choice.weights, {sequences, entries});
  Value rank = e.rankInGroup(ids, scores, moe.experts);
  Value fits = e.compare(rank, ComparePredicate::lt, e.splatLike(room, rank));
  Value kept = e.select(fits, ids, e.splatLike(-1, ids));
  choice.experts = e.reshape(kept, shape);
  Value out = e.compare(kept, ComparePredicate::lt, e.zeros(tensorType(kept)));
  return e.sumAll(e.convert(out, f32.getElementType()));
}

//===--- losses ---------------------------------------------------------===//

/// Choices of each expert in each sequence: f32 [sequences, experts].
static Value loads(Emitter &e, const MoeSpec &moe, Value experts,
                   int64_t sequences) {
  int64_t entries = tensorType(experts).getNumElements() / sequences;
  SmallVector<int64_t> shape{sequences, moe.experts, entries};
  Value ids = e.reshape(experts, {sequences, entries});
  Value chosen =
      e.compare(e.broadcast(ids, {0, 2}, shape), ComparePredicate::eq,
                e.iota(i32Tensor(e, shape), 1));
  return e.sumLast(e.convert(chosen, e.builder().getF32Type()));
}

/// experts × Σ f p of the scope that a token is in, summed over all tokens.
/// With c an expert's choices of `tokens` tokens, f = c / (tokens × chosen).
static Value balance(Emitter &e, const MoeSpec &moe, const RouterScope &router,
                     Value load, Value probabilities) {
  int64_t sequences = shapeOf(load)[0];
  int64_t tokens = shapeOf(probabilities)[0];
  Value sums = e.sum(
      e.reshape(probabilities, {sequences, tokens / sequences, moe.experts}),
      {1});
  int64_t counted = tokens / sequences;
  if (router.recipe.balance != recipe::BalanceScope::Sequence) {
    sums = e.sum(sums, {0});
    load = router.load ? router.load : e.sum(load, {0});
    counted = router.load ? router.loadTokens : tokens;
  }
  double scale =
      static_cast<double>(moe.experts) /
      (static_cast<double>(counted) * static_cast<double>(moe.chosen));
  return e.mul(e.sumAll(e.mul(load, sums)), scale);
}

/// log Σ exp of each row.
static Value logSumExp(Emitter &e, Value logits) {
  Value most = e.maxLast(logits);
  Value rest = e.sub(logits, e.broadcastFirst(most, shapeOf(logits)));
  return e.add(most, e.unary<graph::LogOp>(e.sumLast(e.exp(rest))));
}

/// −Σ p log p, summed over all tokens.
static Value entropy(Emitter &e, Value probabilities) {
  Value positive =
      e.max(probabilities,
            e.splatLike(std::numeric_limits<float>::min(), probabilities));
  return e.neg(e.sumAll(e.mul(probabilities, e.unary<graph::LogOp>(positive))));
}

/// The balance loss with its weight, which grows in the first steps: the loss
/// of step n (from 0) counts (n + 1) / warm-up of it.
static Value weighted(Emitter &e, const recipe::Recipe::Moe &recipe, Value loss,
                      Value step) {
  if (recipe.balanceWarmup == 0)
    return e.mul(loss, recipe.balanceWeight);
  Value done = e.add(e.convert(step, e.builder().getF32Type()), 1.0);
  Value part = e.mul(done, 1.0 / static_cast<double>(recipe.balanceWarmup));
  return e.mul(e.mul(loss, e.min(part, e.splatLike(1.0, part))),
               recipe.balanceWeight);
}

void judge(Emitter &e, const MoeSpec &moe, const RouterChoice &choice,
           Value dropped, int64_t sequences, Value step, RouterScope &router) {
  Value load = loads(e, moe, choice.chosen, sequences);
  router.counts = e.sum(load, {0});
  if (router.countsOnly)
    return;
  Value p = moe.score == RouterScore::Softmax ? choice.scores
                                              : overSum(e, choice.scores);
  Value even = balance(e, moe, router, load, p);
  Value lse = logSumExp(e, choice.logits);
  Value z = e.sumAll(e.mul(lse, lse));
  const recipe::Recipe::Moe &recipe = router.recipe;
  if (recipe.balanceWeight > 0)
    router.penalty = weighted(e, recipe, even, step);
  if (recipe.zWeight > 0) {
    Value term = e.mul(z, recipe.zWeight);
    router.penalty = router.penalty ? e.add(router.penalty, term) : term;
  }
  SmallVector<Value> sums(routerSums);
  sums[droppedSum] = dropped;
  sums[entropySum] = entropy(e, p);
  sums[zSum] = z;
  sums[balanceSum] = even;
  for (Value &sum : sums)
    sum = e.reshape(sum, {1});
  router.sums = e.concat(sums, 0);
}

//===--- the end of a step ----------------------------------------------===//

Value routerTable(Emitter &e, const MoeSpec &moe, Value loads, Value sums) {
  ArrayRef<int64_t> shape = shapeOf(loads);
  Value choices = e.sumLast(loads);
  Value tokens = e.mul(choices, 1.0 / static_cast<double>(moe.chosen));
  auto column = [&](RouterSum which) {
    return e.reshape(e.slice(sums, {0, which}, {shape[0], 1}), {shape[0]});
  };
  Value isDead =
      e.compare(loads, ComparePredicate::eq, e.zeros(tensorType(loads)));
  std::array<Value, kRouterColumns> columns;
  auto set = [&](RouterColumn which, Value value) {
    columns[static_cast<size_t>(which)] = e.reshape(value, {shape[0], 1});
  };
  set(RouterColumn::maxLoad,
      e.mul(e.div(e.maxLast(loads), choices), static_cast<double>(shape[1])));
  set(RouterColumn::dead,
      e.sumLast(e.convert(isDead, e.builder().getF32Type())));
  set(RouterColumn::dropped, e.div(column(droppedSum), choices));
  set(RouterColumn::entropy, e.div(column(entropySum), tokens));
  set(RouterColumn::z, e.div(column(zSum), tokens));
  set(RouterColumn::balance, e.div(column(balanceSum), tokens));
  return e.concat(columns, 1);
}

Value movedBias(Emitter &e, Value bias, Value load, double rate) {
  double share = 1.0 / static_cast<double>(shapeOf(load)[0]);
  Value mean = e.broadcastScalar(e.mul(e.sumAll(load), share), shapeOf(load));
  Value zero = e.zeros(tensorType(load));
  auto step = [&](ComparePredicate predicate) {
    return e.select(e.compare(load, predicate, mean), e.splatLike(rate, load),
                    zero);
  };
  return e.add(bias,
               e.sub(step(ComparePredicate::lt), step(ComparePredicate::gt)));
}

} // namespace tessera::models
