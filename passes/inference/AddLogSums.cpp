// The pass: log Σ exp of logits as an output.
#include "dialects/graph/GraphComposite.h"
#include "passes/inference/Inference.h"
#include "passes/precision/OpTraits.h"

using namespace mlir;
using namespace tessera;

namespace tessera {
#define GEN_PASS_DEF_ADDLOGSUMS
#include "passes/inference/Passes.h.inc"
} // namespace tessera

static std::optional<unsigned> findLogits(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto name =
            function.getResultAttrOfType<StringAttr>(i, graph::kOutputAttr);
        name && name.getValue() == "logits")
      return i;
  return std::nullopt;
}

namespace {

struct AddLogSums : tessera::impl::AddLogSumsBase<AddLogSums> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (std::optional<unsigned> logits = findLogits(function))
        add(function, *logits);
  }

  static void add(func::FuncOp function, unsigned logits) {
    Operation *end = function.front().getTerminator();
    OpBuilder builder(end);
    Value rows = end->getOperand(logits);
    graph::Emitter e(builder, rows.getLoc());
    Value sums = graph::detail::exponentials(e, rows).logSum;
    auto name = builder.getNamedAttr(graph::kOutputAttr,
                                     builder.getStringAttr("log_sums"));
    function.insertResult(function.getNumResults(), sums.getType(),
                          builder.getDictionaryAttr(name));
    end->insertOperands(end->getNumOperands(), sums);
  }
};

} // namespace
