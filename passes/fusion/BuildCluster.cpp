// Makes a graph.cluster of a group of ops.
#include "dialects/graph/GraphQuantOps.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "mlir/IR/IRMapping.h"
#include "passes/fusion/ClusterExpression.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/FusionGraph.h"
#include "passes/fusion/StridedView.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::graph;

namespace {

// The body of a cluster under construction.
class ClusterBuilder {
public:
  ClusterBuilder(ArrayRef<Operation *> members, ClusterKind kind,
                 const llvm::DenseSet<Operation *> &repeats)
      : members(members), kind(kind), repeats(repeats) {
    inside.insert(members.begin(), members.end());
  }
  ClusterOp build(ArrayRef<Value> outputs);

  /// Members read their operands, including views, from memory instead of
  /// recomputing them.
  bool storesOperands = false;

private:
  Value inner(Value outer, bool mayRepeat);
  Value addInput(Value outer);
  void findNeeded(Value value, llvm::DenseSet<Operation *> &needed) const;
  std::string name() const;
  DenseI64ArrayAttr accumulates(ArrayRef<Value> outputs, OpBuilder &b) const;

  SmallVector<Operation *> members;
  llvm::DenseSet<Operation *> inside;
  ClusterKind kind;
  const llvm::DenseSet<Operation *> &repeats;
  SmallVector<Value> inputs;
  int64_t accumulated = 0; // the input that a scatter adds to
  IRMapping mapping;
  Block *body = nullptr;
};

} // namespace

// Whether the skeleton reads the operand directly from memory, through a
// strided view at most. Contractions and attention read their operands tile by
// tile; a gathered table is whole.
static bool isReadAsStored(OpOperand &operand) {
  Operation *op = operand.getOwner();
  if (isa<SampleOp, DequantizeOp>(op))
    return true;
  if (readsQuantizedTable(op))
    return operand.getOperandNumber() == 1;
  bool isAttention = isa<AttentionOp, AttentionGradOp, PagedAttentionOp>(op);
  if (isAttention && tensorType(operand.get()).getRank() == 0) // start
    return true;
  if (!isAttention && !isProduct(op))
    return isa<EmbeddingOp>(op) && operand.getOperandNumber() == 0;
  if (isProduct(op) && operand.getOperandNumber() == 2) // where groups begin
    return true;
  Value value = operand.get();
  // Contractions load integers into registers themselves, attention into its
  // tiles.
  if ((isProduct(op) && value.getDefiningOp<DequantizeOp>()) ||
      (isAttention && value.getDefiningOp<DequantizeRowsOp>()))
    return false;
  // Contractions upcast operands as they stage them.
  while (auto convert = value.getDefiningOp<ConvertOp>()) {
    if (isAttention || !isFree(convert))
      break;
    value = convert.getInput();
  }
  std::optional<View> view = traceView(value, [](Value from) {
    return !from.getDefiningOp() || !isFree(from.getDefiningOp());
  });
  if (!view)
    return true;
  if (!isAttention)
    return false;
  // Attention reads each tile of a head as one run of memory, without repeats.
  for (auto [size, stride] : llvm::zip_equal(view->shape, view->strides))
    if (size != 1 && stride == 0)
      return true;
  return view->strides.back() != 1 && view->shape.back() != 1;
}

// Whether the op's result replaces the operand in memory: it is a separate
// argument, because the kernel writes there while it reads the others.
static bool isAccumulated(OpOperand &operand) {
  return isa<RowScatter>(operand.getOwner()) && operand.getOperandNumber() == 0;
}

Value ClusterBuilder::addInput(Value outer) {
  inputs.push_back(outer);
  return body->addArgument(outer.getType(), outer.getLoc());
}

// The value inside the body that corresponds to `outer`: computed by a copy of
// its op if that is a member, free or repeated; else an argument.
Value ClusterBuilder::inner(Value outer, bool mayRepeat) {
  if (Value known = mapping.lookupOrNull(outer))
    return known;
  Operation *op = outer.getDefiningOp();
  if (op && (inside.contains(op) ||
             (mayRepeat && (isFree(op) || repeats.contains(op))))) {
    Value base;
    for (OpOperand &operand : op->getOpOperands())
      if (isAccumulated(operand)) {
        accumulated = inputs.size();
        base = addInput(operand.get());
      } else {
        bool isStored = storesOperands && inside.contains(op) &&
                        !operand.get().getDefiningOp<ConstantOp>();
        inner(operand.get(), !isStored && !isReadAsStored(operand));
      }
    OpBuilder b(op->getContext());
    b.setInsertionPointToEnd(body);
    Operation *copy = b.clone(*op, mapping);
    copy->removeAttr(kLayerAttr); // the cluster has it
    copy->removeAttr(kMicrobatchSumAttr);
    for (OpOperand &operand : copy->getOpOperands())
      if (isAccumulated(operand))
        operand.set(base);
    return mapping.lookup(outer);
  }
  mapping.map(outer, addInput(outer));
  return mapping.lookup(outer);
}

// The members that compute `value`.
void ClusterBuilder::findNeeded(Value value,
                                llvm::DenseSet<Operation *> &needed) const {
  Operation *op = value.getDefiningOp();
  if (!op || (!inside.contains(op) && !isFree(op) && !repeats.contains(op)) ||
      !needed.insert(op).second)
    return;
  for (Value operand : op->getOperands())
    findNeeded(operand, needed);
}

// The cluster's name for readers: the composites it came from, else its
// contraction or reduction and the ops around it.
std::string ClusterBuilder::name() const {
  llvm::SmallSetVector<StringRef, 8> parts;
  for (Operation *op : members) {
    if (auto origin = op->getAttrOfType<StringAttr>(kOriginAttr))
      parts.insert(origin.getValue());
    else if (isa<EinsumOp>(op))
      parts.insert("linear");
    else if (auto reduce = dyn_cast<ReduceOp>(op))
      parts.insert(stringifyReduceKind(reduce.getKind()));
    else if (auto gelu = dyn_cast<GeluOp>(op))
      parts.insert("gelu");
    else
      parts.insert(op->getName().stripDialect());
  }
  std::string text;
  if (kind == ClusterKind::column)
    text = "columns_";
  if (kind == ClusterKind::row && llvm::none_of(members, [](Operation *op) {
        return op->hasAttr(kOriginAttr);
      }))
    text = "rows_";
  // Long chains are named by their first and last few.
  SmallVector<StringRef> list(parts.begin(), parts.end());
  if (list.size() > 4)
    list.erase(list.begin() + 2, list.end() - 2);
  return text + llvm::join(list, "_");
}

// Pairs (input, output) of an addition to a contraction or a column reduction,
// if the summand is dead afterwards.
DenseI64ArrayAttr ClusterBuilder::accumulates(ArrayRef<Value> outputs,
                                              OpBuilder &b) const {
  SmallVector<int64_t> pairs;
  if (kind != ClusterKind::contraction && kind != ClusterKind::grouped &&
      kind != ClusterKind::column && kind != ClusterKind::scatter)
    return {};
  for (auto [i, output] : llvm::enumerate(outputs)) {
    if (output.getDefiningOp<RowScatter>()) {
      pairs.append({accumulated, static_cast<int64_t>(i)});
      continue;
    }
    Value base;
    if (auto sum = output.getDefiningOp<AddOp>())
      for (Value operand : sum->getOperands())
        if (isa<BlockArgument>(operand) && operand.hasOneUse() &&
            isa<LoopOp>(operand.getParentBlock()->getParentOp()))
          base = operand;
    auto *it = llvm::find(inputs, base);
    if (!base || it == inputs.end())
      continue;
    pairs.push_back(it - inputs.begin());
    pairs.push_back(i);
  }
  return pairs.empty() ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(pairs);
}

// A cluster depends on the last of its layers. It runs in the forward pass if
// one of its ops does, though the backward pass computes some of it again.
static LayerAttr layerOf(ArrayRef<Operation *> members) {
  LayerAttr last;
  for (Operation *op : members) {
    auto layer = op->getAttrOfType<LayerAttr>(kLayerAttr);
    if (layer && (!last || layer.isForward() || !last.isForward()))
      last = layer;
  }
  return last;
}

ClusterOp ClusterBuilder::build(ArrayRef<Value> outputs) {
  OpBuilder b(members.back());
  auto region = std::make_unique<Region>();
  body = new Block();
  region->push_back(body);
  // Only the ops that the results need (others may have repeated a member's
  // work), in program order.
  llvm::DenseSet<Operation *> needed;
  for (Value output : outputs)
    findNeeded(output, needed);
  for (Operation *op : members)
    if (needed.contains(op))
      inner(op->getResult(0), false);
  SmallVector<Value> yielded;
  SmallVector<Type> types;
  for (Value output : outputs) {
    yielded.push_back(mapping.lookup(output));
    types.push_back(output.getType());
  }
  b.setInsertionPointToEnd(body);
  b.create<YieldOp>(members.back()->getLoc(), yielded);
  b.setInsertionPoint(members.back());
  auto cluster = b.create<ClusterOp>(members.front()->getLoc(), types,
                                     ClusterKindAttr::get(b.getContext(), kind),
                                     b.getStringAttr(name()), inputs,
                                     accumulates(outputs, b));
  cluster.getBody().takeBody(*region);
  if (LayerAttr layer = layerOf(members))
    cluster->setAttr(kLayerAttr, layer);
  return cluster;
}

// Whether a contraction's accumulators hold the element that each epilogue op
// reads: the one that it computes. Rows of groups stay separate dimensions, as
// do all `undivided` ones of such a product.
static bool isEpilogue(const ClusterExpression &expression, size_t undivided) {
  if (expression.pieces.size() != 1)
    return false;
  const ExprPiece &piece = expression.pieces.front();
  if (undivided && piece.rank() != undivided)
    return false;
  return llvm::all_of(piece.nodes, [&](const ExprNode &node) {
    return node.kind != ExprNode::given ||
           node.address == piece.roots.front().address;
  });
}

// Whether the skeleton can compute what the body says.
static bool canCompute(ClusterOp cluster) {
  ExpressionOptions options;
  ClusterKind kind = cluster.getKind();
  if (kind == ClusterKind::attention || kind == ClusterKind::attention_grad ||
      kind == ClusterKind::paged_attention || kind == ClusterKind::sample ||
      readsQuantizedTable(cluster))
    return true;
  bool accumulates =
      kind == ClusterKind::contraction || kind == ClusterKind::grouped;
  if (accumulates)
    for (Operation &op : cluster.getBody().front())
      if (isProduct(&op)) {
        options.given.push_back(op.getResult(0));
        // Tiles have rows and columns, which no element crosses.
        options.groups.assign(tensorType(op.getResult(0)).getShape().begin(),
                              tensorType(op.getResult(0)).getShape().end());
      }
  if (kind == ClusterKind::scatter) {
    auto scatter = *cluster.getBody().front().getOps<RowScatter>().begin();
    options = scatterExpression(scatter);
  }
  llvm::Expected<ClusterExpression> expression =
      buildExpression(cluster, options);
  if (expression)
    return !accumulates ||
           isEpilogue(*expression,
                      kind == ClusterKind::grouped ? options.groups.size() : 0);
  llvm::consumeError(expression.takeError());
  return false;
}

static bool isComputable(ClusterOp cluster, ComputableClusters &computable) {
  if (computable.contains(cluster))
    return true;
  if (!canCompute(cluster))
    return false;
  computable.insert(cluster);
  return true;
}

// A cluster of one op is always computable. With the views that lead to it, it
// may need to divide its space in ways that do not fit together.
static ClusterOp buildSingle(Operation *op, ClusterKind kind,
                             const llvm::DenseSet<Operation *> &repeats,
                             ArrayRef<Value> outputs,
                             ComputableClusters &computable) {
  ClusterOp cluster = ClusterBuilder({op}, kind, repeats).build(outputs);
  if (isComputable(cluster, computable))
    return cluster;
  cluster.erase();
  ClusterBuilder builder({op}, kind, {});
  builder.storesOperands = true;
  return builder.build(outputs);
}

// Results that an attention kernel writes even if they are unused.
static bool isWritten(Value result, const FusionGroup &group) {
  Operation *op = result.getDefiningOp();
  return isa<AttentionGradOp>(op)
             ? group.members.size() == 1
             : isa<AttentionOp>(op) && result == op->getResult(0);
}

LogicalResult tessera::buildCluster(FusionGraph &graph, unsigned id,
                                    OpPositions &slots,
                                    ComputableClusters &computable) {
  FusionGroup &group = graph.group(id);
  SmallVector<Operation *> members;
  SmallVector<Value> outputs;
  for (unsigned node : group.members) {
    members.push_back(graph.op(node));
    for (Value result : members.back()->getResults())
      if (graph.isRead(result, id) || isWritten(result, group))
        outputs.push_back(result);
  }
  if (outputs.empty())
    return success();
  ClusterOp cluster;
  if (members.size() == 1) {
    cluster = buildSingle(members[0], *group.kind, group.repeats, outputs,
                          computable);
  } else {
    cluster =
        ClusterBuilder(members, *group.kind, group.repeats).build(outputs);
    if (!isComputable(cluster, computable)) {
      cluster.erase();
      return failure();
    }
  }
  for (auto [output, result] : llvm::zip_equal(outputs, cluster.getResults()))
    output.replaceAllUsesWith(result);
  slots[cluster] = slots.lookup(members.front());
  return success();
}

void tessera::buildCluster(Operation *op, OpPositions &slots,
                           ComputableClusters &computable) {
  Value result = op->getResult(0);
  ClusterOp cluster =
      buildSingle(op, ClusterKind::elementwise, {}, {result}, computable);
  result.replaceAllUsesWith(cluster.getResult(0));
  slots[cluster] = slots.lookup(op);
}
