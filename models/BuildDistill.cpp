// The loss of learning from a teacher (Hinton et al. 2015, arXiv 1503.02531)
// whose most probable tokens are stored with the data. All others are one
// class, the "ghost token" of Anshumann et al. 2025 (arXiv 2503.16870): with
// the K tokens alone, renormalized, a model would learn to be surer than its
// teacher. Log-probabilities of the K tokens come from the fused head, so that
// no logits are stored.
#include "models/ModelBuilder.h"
#include "runtime/train/Distill.h"

using namespace mlir;
using tessera::graph::ComparePredicate;
using tessera::graph::Emitter;
using tessera::graph::tensorType;

namespace tessera::models {

using recipe::Divergence;
using Distill = recipe::Recipe::Distill;

namespace {
/// Log-probabilities of the K tokens, f32 [B, T, K], and of all others
/// together, f32 [B, T].
struct Classes {
  Value tokens;
  Value others; ///< null if K is the vocabulary
};
} // namespace

/// The last dimension's elements [begin, begin + count).
static Value lastColumns(Emitter &e, Value x, int64_t begin, int64_t count) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  SmallVector<int64_t> start(shape.size(), 0);
  start.back() = begin;
  shape.back() = count;
  return e.slice(x, start, shape);
}

/// [..., 1] → [...]
static Value withoutLast(Emitter &e, Value x) {
  return e.reshape(x, tensorType(x).getShape().drop_back());
}

static Classes teacherOf(Emitter &e, Value logProbs, int64_t top,
                         bool hasOthers) {
  return {lastColumns(e, logProbs, 0, top),
          hasOthers ? withoutLast(e, lastColumns(e, logProbs, top, 1))
                    : Value()};
}

/// The probability of all others is 1 minus that of the K tokens, which f32
/// resolves to 2^-24.
static Classes studentOf(Emitter &e, Value logProbs, bool hasOthers) {
  if (!hasOthers)
    return {logProbs, {}};
  Value rest = e.add(e.neg(e.sumLast(e.exp(logProbs))), 1);
  rest = e.max(rest, e.splatLike(0x1p-24, rest));
  return {logProbs, e.unary<graph::LogOp>(rest)};
}

/// KL(p || q) of each token: [B, T].
static Value divergence(Emitter &e, const Classes &p, const Classes &q) {
  auto term = [&](Value logP, Value logQ) {
    return e.mul(e.exp(logP), e.sub(logP, logQ));
  };
  Value sum = e.sumLast(term(p.tokens, q.tokens));
  return p.others ? e.add(sum, term(p.others, q.others)) : sum;
}

static Value entropy(Emitter &e, const Classes &p) {
  auto term = [&](Value logP) { return e.mul(e.exp(logP), logP); };
  Value sum = e.sumLast(term(p.tokens));
  return e.neg(p.others ? e.add(sum, term(p.others)) : sum);
}

/// Whether the first of the K tokens is also the student's.
static Value agreement(Emitter &e, const Classes &student) {
  Value first = withoutLast(e, lastColumns(e, student.tokens, 0, 1));
  Value isFirst =
      e.compare(first, ComparePredicate::ge, e.maxLast(student.tokens));
  return e.convert(isFirst, tensorType(first).getElementType());
}

/// Losses of tokens [B, T] and of the teacher's [B, T, K], from one pass over
/// the head where both have the same logits. The first are null without a term
/// of cross-entropy.
std::pair<Value, Value> ModelBuilder::distillHead(Scope &scope, Value x,
                                                  const BatchValues &batch) {
  const Distill &distill = recipe.distill;
  if (distill.weight == 1)
    return {Value(), headLoss(scope, x, batch.teacherTokens, /*isSum=*/false,
                              distill.temperature)};
  if (distill.temperature != 1)
    return {headLoss(scope, x, batch.targets, /*isSum=*/false),
            headLoss(scope, x, batch.teacherTokens, /*isSum=*/false,
                     distill.temperature)};
  Emitter e = scope.at("lm_head");
  SmallVector<int64_t> shape(tensorType(batch.targets).getShape());
  shape.push_back(1);
  Value all = e.concat({batch.teacherTokens, e.reshape(batch.targets, shape)},
                       /*dim=*/2);
  Value losses = headLoss(scope, x, all, /*isSum=*/false);
  return {withoutLast(e, lastColumns(e, losses, distill.top, 1)),
          lastColumns(e, losses, 0, distill.top)};
}

ModelBuilder::TaskLoss ModelBuilder::distillLoss(Scope &scope, Value x,
                                                 const BatchValues &batch) {
  const Distill &distill = recipe.distill;
  auto [ofTargets, ofTeacher] = distillHead(scope, x, batch);
  Emitter e = scope.at("lm_head");
  const bool hasOthers = distill.top < spec.vocab;
  const Classes teacher =
      teacherOf(e, batch.teacherLogProbs, distill.top, hasOthers);
  const Classes student = studentOf(e, e.neg(ofTeacher), hasOthers);
  Value kl = distill.divergence == Divergence::Forward
                 ? divergence(e, teacher, student)
                 : divergence(e, student, teacher);
  Value loss =
      e.mul(kl, distill.weight * distill.temperature * distill.temperature);
  if (ofTargets)
    loss = e.add(loss, e.mul(ofTargets, 1 - distill.weight));
  Value isTarget = e.compare(batch.targets, ComparePredicate::ne,
                             e.splatLike(-100, batch.targets));
  static_assert(kDistillColumns == 6);
  SmallVector<Value> columns{kl, agreement(e, student), entropy(e, teacher),
                             e.sumLast(e.exp(teacher.tokens)),
                             e.sumLast(e.exp(student.tokens))};
  if (ofTargets)
    columns.push_back(ofTargets);
  return {e.sumAll(e.select(isTarget, loss, e.splatLike(0.0, loss))),
          columnSums(e, isTarget, columns)};
}

} // namespace tessera::models
