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
  StringRef name() const override { return "adamw"; }
  SmallVector<StringRef> momentSuffixes() const override {
    return {"exp_avg", "exp_avg_sq"};
  }

  SmallVector<Value> scalars(graph::Emitter &e, HyperTable &hyper, Value lr,
                             Value t) const override {
    Value beta1 = hyper[HyperSlot::beta1], beta2 = hyper[HyperSlot::beta2];
    Value shrink = oneMinus(e, e.mul(lr, hyper[HyperSlot::weightDecay]));
    Value n = e.add(t, 1.0);
    Value stepSize = e.div(lr, oneMinusPower(e, beta1, n));
    Value root = e.unary<graph::SqrtOp>(oneMinusPower(e, beta2, n));
    Value inverseRoot = e.div(e.splatLike(1.0, root), root);
    return {beta1,
            beta2,
            oneMinus(e, beta1),
            oneMinus(e, beta2),
            hyper[HyperSlot::eps],
            inverseRoot,
            stepSize,
            shrink};
  }

  SmallVector<Value> update(graph::Emitter &e, ValueRange scalars,
                            Value parameter, Value gradient, ValueRange moments,
                            bool decay) const override {
    Spread spread(e, parameter);
    Value beta1 = scalars[0], beta2 = scalars[1], rest1 = scalars[2],
          rest2 = scalars[3], eps = scalars[4], inverseRoot = scalars[5],
          stepSize = scalars[6], shrink = scalars[7];
    Value first =
        e.add(e.mul(moments[0], spread(beta1)), e.mul(gradient, spread(rest1)));
    Value second = e.add(e.mul(moments[1], spread(beta2)),
                         e.mul(e.mul(gradient, gradient), spread(rest2)));
    Value root = e.mul(e.unary<graph::SqrtOp>(second), spread(inverseRoot));
    Value direction = e.div(first, e.add(root, spread(eps)));
    Value kept = decay ? e.mul(parameter, spread(shrink)) : parameter;
    return {e.sub(kept, e.mul(direction, spread(stepSize))), first, second};
  }
};

/// torch.optim.SGD (no dampening, no Nesterov):
///   g ← g + λ w        b ← μ b + g        w ← w - lr b
class Sgd : public Optimizer {
public:
  explicit Sgd(bool momentum) : momentum(momentum) {}

  StringRef name() const override { return "sgd"; }
  SmallVector<StringRef> momentSuffixes() const override {
    return momentum ? SmallVector<StringRef>{"momentum_buffer"}
                    : SmallVector<StringRef>{};
  }

  SmallVector<Value> scalars(graph::Emitter &, HyperTable &hyper, Value lr,
                             Value) const override {
    SmallVector<Value> result{lr, hyper[HyperSlot::weightDecay]};
    if (momentum)
      result.push_back(hyper[HyperSlot::momentum]);
    return result;
  }

  SmallVector<Value> update(graph::Emitter &e, ValueRange scalars,
                            Value parameter, Value gradient, ValueRange moments,
                            bool decay) const override {
    Spread spread(e, parameter);
    Value lr = scalars[0], weightDecay = scalars[1];
    if (decay)
      gradient = e.add(gradient, e.mul(parameter, spread(weightDecay)));
    if (!momentum)
      return {e.sub(parameter, e.mul(gradient, spread(lr)))};
    Value buffer = e.add(e.mul(moments[0], spread(scalars[2])), gradient);
    return {e.sub(parameter, e.mul(buffer, spread(lr))), buffer};
  }

private:
  bool momentum;
};

} // namespace

std::unique_ptr<Optimizer>
tessera::autodiff::makeOptimizer(recipe::OptimizerKind rule, bool momentum) {
  if (rule == recipe::OptimizerKind::AdamW)
    return std::make_unique<AdamW>();
  return std::make_unique<Sgd>(momentum);
}
