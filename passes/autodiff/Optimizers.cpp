// Update rules. Per-element work is multiplications, additions, one square root
// and one division; everything else is done once on scalars.
#include "passes/autodiff/StepMath.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::autodiff;

namespace {

/// Scalars spread over a tensor.
class Spread {
public:
  Spread(graph::Emitter &e, Value like)
      : e(e), shape(graph::tensorType(like).getShape()) {}
  Value operator()(Value scalar) const {
    return e.broadcastScalar(scalar, shape);
  }

private:
  graph::Emitter &e;
  ArrayRef<int64_t> shape;
};

Value oneMinus(graph::Emitter &e, Value x) {
  return e.sub(e.splatLike(1.0, x), x);
}

// 1 - b^n. With x = n ln b: 1 - e^x = (1 + e^x) tanh(-x/2), which does not
// cancel where b^n is near 1 (f32 would lose all but 10 bits at b = 0.999).
Value oneMinusPower(graph::Emitter &e, Value b, Value n) {
  Value x = e.mul(n, e.unary<graph::LogOp>(b));
  return e.mul(e.add(e.exp(x), 1.0), e.unary<graph::TanhOp>(e.mul(x, -0.5)));
}

/// torch.optim.AdamW: Adam (Kingma & Ba 2015, algorithm 1) with decoupled decay
/// (Loshchilov & Hutter 2019). With n = t + 1:
///   w ← w (1 - lr λ)
///   m ← β₁ m + (1 - β₁) g        v ← β₂ v + (1 - β₂) g²
///   w ← w - lr / (1 - β₁ⁿ) × m / (√v / √(1 - β₂ⁿ) + ε)
class AdamW : public Optimizer {
public:
  AdamW(graph::Emitter &e, const HyperTable &hyper, Value lr, Value t) : e(e) {
    beta1 = hyper[HyperSlot::beta1];
    beta2 = hyper[HyperSlot::beta2];
    eps = hyper[HyperSlot::eps];
    keep1 = oneMinus(e, beta1);
    keep2 = oneMinus(e, beta2);
    shrink = oneMinus(e, e.mul(lr, hyper[HyperSlot::weightDecay]));
    Value n = e.add(t, 1.0);
    stepSize = e.div(lr, oneMinusPower(e, beta1, n));
    Value root = e.unary<graph::SqrtOp>(oneMinusPower(e, beta2, n));
    inverseRoot = e.div(e.splatLike(1.0, root), root);
  }

  SmallVector<Value> update(Value parameter, Value gradient, ValueRange moments,
                            bool decay) const override {
    Spread spread(e, parameter);
    Value first =
        e.add(e.mul(moments[0], spread(beta1)), e.mul(gradient, spread(keep1)));
    Value second = e.add(e.mul(moments[1], spread(beta2)),
                         e.mul(e.mul(gradient, gradient), spread(keep2)));
    Value root = e.mul(e.unary<graph::SqrtOp>(second), spread(inverseRoot));
    Value direction = e.div(first, e.add(root, spread(eps)));
    Value kept = decay ? e.mul(parameter, spread(shrink)) : parameter;
    return {e.sub(kept, e.mul(direction, spread(stepSize))), first, second};
  }

private:
  graph::Emitter &e;
  Value beta1, beta2, eps, keep1, keep2, shrink, stepSize, inverseRoot;
};

/// torch.optim.SGD (no dampening, no Nesterov):
///   g ← g + λ w        b ← μ b + g        w ← w - lr b
class Sgd : public Optimizer {
public:
  Sgd(graph::Emitter &e, const HyperTable &hyper, Value lr)
      : e(e), lr(lr), weightDecay(hyper[HyperSlot::weightDecay]),
        momentum(hyper[HyperSlot::momentum]) {}

  SmallVector<Value> update(Value parameter, Value gradient, ValueRange moments,
                            bool decay) const override {
    Spread spread(e, parameter);
    if (decay)
      gradient = e.add(gradient, e.mul(parameter, spread(weightDecay)));
    if (moments.empty())
      return {e.sub(parameter, e.mul(gradient, spread(lr)))};
    Value buffer = e.add(e.mul(moments[0], spread(momentum)), gradient);
    return {e.sub(parameter, e.mul(buffer, spread(lr))), buffer};
  }

private:
  graph::Emitter &e;
  Value lr, weightDecay, momentum;
};

} // namespace

SmallVector<StringRef> tessera::autodiff::momentSuffixes(OptimizerRule rule,
                                                         bool momentum) {
  if (rule == OptimizerRule::adamw)
    return {"exp_avg", "exp_avg_sq"};
  return momentum ? SmallVector<StringRef>{"momentum_buffer"}
                  : SmallVector<StringRef>{};
}

std::unique_ptr<Optimizer>
tessera::autodiff::makeOptimizer(OptimizerRule rule, graph::Emitter &e,
                                 const HyperTable &hyper, Value lr, Value t) {
  if (rule == OptimizerRule::adamw)
    return std::make_unique<AdamW>(e, hyper, lr, t);
  return std::make_unique<Sgd>(e, hyper, lr);
}
