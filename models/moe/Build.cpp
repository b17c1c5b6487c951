// A layer's experts: dispatches rows to them, applies their matrices, and
// combines the results.
#include "dialects/graph/GraphExchangeOps.h"
#include "models/moe/Router.h"
#include "models/moe/Routing.h"

using namespace mlir;
using tessera::graph::Emitter;
using tessera::graph::shapeOf;
using tessera::graph::tensorType;

namespace tessera::models {

/// Multiplies each row by its expert's matrix, of a stack [experts, out, in].
static Value expertLinear(const Scope &scope, Emitter &e, Value rows,
                          StringRef matrix, Value offsets) {
  ExpertNames names = expertNames(scope.spec);
  Value stack =
      scope.parameter(StringRef(names.experts) + "." + matrix + ".weight");
  return e.groupedMatmul(rows, stack, offsets, /*transposed=*/true);
}

/// The same with a stack [experts, in, out], and a bias of each expert.
static Value expertLinearWithBias(const Scope &scope, Emitter &e, Value rows,
                                  StringRef matrix, Value offsets) {
  std::string name =
      (StringRef(expertNames(scope.spec).experts) + "." + matrix).str();
  Value stack = scope.parameter(name), bias = scope.parameter(name + "_bias");
  int64_t experts = shapeOf(stack)[0], out = shapeOf(stack)[2],
          count = shapeOf(rows)[0];
  auto multiply = [&](Value lhs, Value rhs) {
    return e.groupedMatmul(lhs, rhs, offsets, /*transposed=*/false);
  };
  // A one for each row, made of the rows: on a mesh they are in the order of
  // the device that has them.
  Value first = e.slice(rows, {0, 0}, {count, 1});
  Value ones = e.convert(e.compare(first, graph::ComparePredicate::eq, first),
                         tensorType(rows).getElementType());
  return e.add(multiply(rows, stack),
               multiply(ones, e.reshape(bias, {experts, 1, out})));
}

/// The activation of gate and up, whose columns are interleaved.
static Value clippedGate(const Scope &scope, Emitter &e, Value both) {
  ArrayRef<int64_t> shape = shapeOf(both);
  Value pairs = e.reshape(both, {shape[0], shape[1] / 2, 2});
  auto part = [&](int64_t index) {
    return e.reshape(e.slice(pairs, {0, 0, index}, {shape[0], shape[1] / 2, 1}),
                     {shape[0], shape[1] / 2});
  };
  Value gate = part(0), up = part(1);
  const double limit = *scope.spec.moe->swigluLimit;
  Value most = e.splatLike(limit, gate);
  gate = e.min(gate, most);
  up = e.max(e.min(up, most), e.splatLike(-limit, up));
  return e.mul(activation(e, gate, scope.spec.activation), e.add(up, 1.0));
}

namespace {
/// send_rows and return_rows, in training, where rows may be exchanged among
/// devices. Inference programs have one device; with moe.dispatch = gather
/// nothing is exchanged.
class Sending {
public:
  Sending(const Scope &scope, Emitter &e, Value slots, Value offsets)
      : e(e), slots(slots), offsets(offsets) {
    if (!scope.router)
      return;
    recipe::RowDispatch dispatch = scope.router->recipe.dispatch;
    sends = dispatch != recipe::RowDispatch::Gather;
    always = dispatch == recipe::RowDispatch::Exchange;
    if (double most = scope.router->recipe.buffer)
      buffer = e.builder().getF64FloatAttr(most);
  }

  /// Rows and offsets as the experts receive them.
  std::pair<Value, Value> send(Value rows) {
    if (!sends)
      return {rows, offsets};
    auto op = e.builder().create<graph::SendRowsOp>(e.location(), rows, slots,
                                                    offsets, always, buffer);
    return {op.getSent(), op.getSentGroups()};
  }

  Value bringBack(Value rows) {
    if (!sends)
      return rows;
    return e.builder().create<graph::ReturnRowsOp>(e.location(), rows, slots,
                                                   offsets, always, buffer);
  }

private:
  Emitter &e;
  Value slots, offsets;
  bool sends = false, always = false;
  FloatAttr buffer; ///< null: room for all rows
};
} // namespace

/// The output of the chosen experts for tokens x [tokens, hidden].
static Value chosenExperts(const Scope &scope, Value x,
                           const RouterChoice &choice) {
  const MoeSpec &moe = *scope.spec.moe;
  ExpertNames names = expertNames(scope.spec);
  // The path of the modules of single experts.
  StringRef path = names.experts;
  path.consume_back(".*");
  Emitter e = scope.at(path);
  graph::GroupRowsOp groups = e.groupRows(choice.experts, moe.experts);
  Value slots = groups.getSlots(), offsets = groups.getOffsets();
  // One row for each choice, including dropped ones, so that rows are sharded
  // with their tokens.
  Value rows =
      e.dispatchRows(x, slots, {}, tensorType(choice.experts).getNumElements());
  Sending sending(scope, e, slots, offsets);
  auto [sent, theirs] = sending.send(rows);
  Value out;
  if (moe.fused) {
    Value both = expertLinearWithBias(scope, e, sent, names.up, theirs);
    out = expertLinearWithBias(scope, e, clippedGate(scope, e, both),
                               names.down, theirs);
  } else {
    Value up = expertLinear(scope, e, sent, names.up, theirs), gate;
    if (moe.fusedGateUp) {
      const int64_t count = shapeOf(up)[0], width = moe.intermediate;
      gate = e.slice(up, {0, 0}, {count, width});
      up = e.slice(up, {0, width}, {count, width});
    } else {
      gate = expertLinear(scope, e, sent, names.gate, theirs);
    }
    Value inner = e.mul(activation(e, gate, scope.spec.activation), up);
    out = expertLinear(scope, e, inner, names.down, theirs);
  }
  return e.combineRows(sending.bringBack(out), slots, choice.weights);
}

/// The output of the shared expert for x [batch, tokens, hidden].
static Value sharedExpert(const Scope &scope, Value x) {
  const ExpertNames names = expertNames(scope.spec);
  std::string name(names.shared);
  auto matrix = [&](std::string_view part) {
    return name + "." + std::string(part);
  };
  MlpNames matrices{matrix(names.gate), matrix(names.up), "",
                    matrix(names.down)};
  if (scope.spec.moe->fusedGateUp)
    matrices = {"", "", matrix(names.up), matrix(names.down)};
  Value y = mlp(scope, x, matrices, /*bias=*/false);
  if (!scope.spec.moe->sharedGate)
    return y;
  Emitter e = scope.at(name + "_gate");
  Value share = e.unary<graph::SigmoidOp>(
      linear(scope, x, name + "_gate", /*bias=*/false));
  ArrayRef<int64_t> shape = shapeOf(y);
  share = e.reshape(share, shape.drop_back());
  return e.mul(y, e.broadcastFirst(share, shape));
}

Value moeLayer(const Scope &scope, Value x) {
  const MoeSpec &moe = *scope.spec.moe;
  ArrayRef<int64_t> shape = shapeOf(x);
  Emitter e = scope.at(expertNames(scope.spec).router);
  Value tokens = e.reshape(x, {shape[0] * shape[1], shape[2]});
  RouterChoice choice = chooseExperts(scope, tokens, shape[0]);
  choice.chosen = choice.experts;
  if (RouterScope *router = scope.router) {
    Value dropped =
        keepWithinCapacity(e, moe, router->recipe, shape[0], choice);
    judge(e, moe, choice, dropped, shape[0], scope.step(), *router);
  }
  Value y = e.reshape(chosenExperts(scope, tokens, choice), shape);
  return moe.sharedIntermediate ? e.add(y, sharedExpert(scope, x)) : y;
}

} // namespace tessera::models
