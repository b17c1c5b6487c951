// Schedule, global norm and clipping.
#include "passes/autodiff/StepMath.h"
#include <numbers>

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;
using graph::ComparePredicate;

Value HyperTable::operator[](HyperSlot slot) {
  Value &value = taken[static_cast<size_t>(slot)];
  if (!value)
    value = e.reshape(e.slice(table, {static_cast<int64_t>(slot)}, {1}), {});
  return value;
}

static Value minus(graph::Emitter &e, double x, Value y) {
  return e.sub(e.splatLike(x, y), y);
}

// 1 at p = 0, 0 at p = 1.
static Value falling(graph::Emitter &e, recipe::ScheduleKind rule, Value p) {
  if (rule == recipe::ScheduleKind::Linear)
    return minus(e, 1.0, p);
  Value cosine = e.unary<graph::CosOp>(e.mul(p, std::numbers::pi));
  return e.mul(e.add(cosine, 1.0), 0.5);
}

// lr from the end of warmup on.
static Value scheduledRate(graph::Emitter &e, recipe::ScheduleKind rule,
                           HyperTable &hyper, Value t) {
  Value lr = hyper[HyperSlot::lr];
  if (rule == recipe::ScheduleKind::Constant)
    return lr;
  Value one = e.splatLike(1.0, t), warmup = hyper[HyperSlot::warmup];
  Value length = e.max(e.sub(hyper[HyperSlot::total], warmup), one);
  Value p = e.min(e.div(e.sub(t, warmup), length), one);
  Value end = hyper[HyperSlot::minRatio];
  Value factor = e.add(end, e.mul(minus(e, 1.0, end), falling(e, rule, p)));
  return e.mul(lr, factor);
}

Value tessera::autodiff::learningRate(graph::Emitter &e,
                                      recipe::ScheduleKind rule,
                                      HyperTable &hyper, Value t) {
  Value warmup = hyper[HyperSlot::warmup];
  // Not selected when warmup is 0; the maximum keeps the quotient finite.
  Value rising = e.div(e.mul(hyper[HyperSlot::lr], e.add(t, 1.0)),
                       e.max(warmup, e.splatLike(1.0, t)));
  return e.select(e.compare(t, ComparePredicate::lt, warmup), rising,
                  scheduledRate(e, rule, hyper, t));
}

// Each layer adds to the sum by itself, so that equal layers stay equal.
Value tessera::autodiff::globalNorm(graph::Emitter &e, ValueRange gradients,
                                    ArrayRef<Parameter> parameters) {
  Value sum;
  for (auto [gradient, parameter] : llvm::zip(gradients, parameters)) {
    Value square = e.mul(gradient, gradient);
    Value part =
        graph::tensorType(square).getRank() ? e.sumAll(square) : square;
    bool isFirst = !sum;
    sum = isFirst ? part : e.add(sum, part);
    if (!isFirst && parameter.layer)
      sum.getDefiningOp()->setAttr(graph::kLayerAttr, parameter.layer);
  }
  return e.unary<graph::SqrtOp>(sum);
}

Value tessera::autodiff::clipScale(graph::Emitter &e, HyperTable &hyper,
                                   Value norm) {
  Value clip = hyper[HyperSlot::clip], one = e.splatLike(1.0, norm);
  Value scale = e.min(e.div(clip, e.add(norm, 1e-6)), one);
  Value on = e.compare(clip, ComparePredicate::gt, e.splatLike(0.0, clip));
  return e.select(on, scale, one);
}
