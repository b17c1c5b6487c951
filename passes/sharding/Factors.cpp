#include "passes/sharding/Factors.h"
#include "dialects/dist/DistOps.h"
#include "dialects/graph/GraphExchangeOps.h"
#include "dialects/graph/GraphQuantOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

//===--- ops --------------------------------------------------------------===//

bool sharding::isSplat(Value value) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}

static bool isScalar(Value value) { return tensorType(value).getRank() == 0; }

FailureOr<OpRule> sharding::ruleOfComputation(Operation *op) {
  if (!isa<func::CallOp>(op))
    return ruleOf(op);
  OpRule rule;
  OpRule::Dims dims;
  auto shaped = llvm::find_if_not(op->getOperands(), isScalar);
  if (shaped != op->getOperands().end())
    dims = rule.loopsOf(*shaped);
  for (Value operand : op->getOperands())
    rule.operands.push_back(isScalar(operand) ? OpRule::Dims() : dims);
  for (Value result : op->getResults())
    rule.results.push_back(isScalar(result) ? OpRule::Dims() : dims);
  return rule;
}

//===--- unification ------------------------------------------------------===//

unsigned Factors::create(int64_t size) {
  nodes.push_back({size, static_cast<unsigned>(nodes.size()), {}});
  return nodes.size() - 1;
}

unsigned Factors::find(unsigned node) const {
  while (nodes[node].parent != node)
    node = nodes[node].parent = nodes[nodes[node].parent].parent;
  return node;
}

void Factors::expand(unsigned node, List &out) const {
  node = find(node);
  if (nodes[node].parts.empty())
    out.push_back(node);
  for (unsigned part : nodes[node].parts)
    expand(part, out);
}

Factors::List Factors::expand(ArrayRef<unsigned> list) const {
  List out;
  for (unsigned node : list)
    expand(node, out);
  return out;
}

void Factors::split(unsigned node, int64_t inner) {
  unsigned outer = create(nodes[node].size / inner), rest = create(inner);
  nodes[node].parts = {outer, rest};
}

// From the fastest-varying factor on. If sizes do not divide one another, the
// remaining factors stay unconnected.
void Factors::unify(ArrayRef<unsigned> a, ArrayRef<unsigned> b) {
  List left = expand(a), right = expand(b);
  while (!left.empty() && !right.empty()) {
    unsigned x = find(left.pop_back_val()), y = find(right.pop_back_val());
    if (x == y)
      continue;
    if (nodes[x].size == nodes[y].size) {
      // Unifying a sibling may have split one of them.
      if (!nodes[x].parts.empty() || !nodes[y].parts.empty()) {
        expand(x, left), expand(y, right);
        continue;
      }
      nodes[std::max(x, y)].parent = std::min(x, y);
      continue;
    }
    bool leftLarger = nodes[x].size > nodes[y].size;
    unsigned large = leftLarger ? x : y, small = leftLarger ? y : x;
    if (nodes[small].size == 0 || nodes[large].size % nodes[small].size)
      return;
    if (nodes[large].parts.empty())
      split(large, nodes[small].size);
    expand(x, left), expand(y, right);
  }
}

SmallVector<Factors::List, 4> &Factors::dimsOf(Value value) {
  auto [entry, isNew] = values.try_emplace(value);
  if (isNew)
    for (int64_t size : tensorType(value).getShape())
      entry->second.push_back(size == 1 ? List() : List{create(size)});
  return entry->second;
}

void Factors::unify(Value a, Value b) {
  if (isSplat(a) || isSplat(b))
    return;
  auto left = dimsOf(a), right = dimsOf(b);
  for (auto [x, y] : llvm::zip(left, right))
    unify(x, y);
}

//===--- connections ------------------------------------------------------===//

LogicalResult Factors::connectCall(func::CallOp call) {
  func::FuncOp callee = callees.of(call);
  if (!callee || callee.isExternal())
    return call.emitOpError("calls @")
           << call.getCallee() << ", which has no body";
  for (auto [operand, argument] :
       llvm::zip(call.getOperands(), callee.getArguments()))
    unify(operand, argument);
  for (auto [result, returned] :
       llvm::zip(call.getResults(),
                 callee.getBody().front().getTerminator()->getOperands()))
    unify(result, returned);
  return success();
}

// Rows of n groups have n + 1 offsets, so no dimension connects them to their
// groups.
void Factors::connectGroups(Operation *op, const OpRule &rule, unsigned first) {
  if (!rule.groups)
    return;
  for (Value operand : op->getOperands()) {
    auto sent = operand.getDefiningOp<graph::SendRowsOp>();
    Value groups = sent ? sent.getGroups() : operand;
    auto def = computations.find(groups.getDefiningOp());
    if (def == computations.end())
      continue;
    const OpRule &defRule = *def->second.rule;
    if (defRule.numbersRows)
      unify(List{first + *rule.groups},
            List{def->second.first + *defRule.groups});
  }
}

LogicalResult Factors::connect(Operation *op) {
  if (isa<func::ReturnOp, graph::YieldOp>(op))
    return success();
  if (auto call = dyn_cast<func::CallOp>(op);
      call && !callees.isPointwiseCall(op))
    return connectCall(call);
  if (auto loop = dyn_cast<graph::LoopOp>(op)) {
    for (auto [init, carried, yielded, result] :
         llvm::zip(loop.getInits(), loop.getCarried(),
                   loop.getYield().getValues(), loop.getResults()))
      unify(init, carried), unify(carried, yielded), unify(carried, result);
    return success();
  }
  if (auto reshard = dyn_cast<dist::ReshardOp>(op)) {
    unify(reshard.getInput(), reshard.getResult());
    return success();
  }
  FailureOr<const OpRule *> found = rules.of(op);
  if (failed(found))
    return failure();
  const OpRule &rule = **found;
  unsigned first = nodes.size();
  for (const LoopDim &loopDim : rule.loops)
    create(loopDim.size);
  auto connectValue = [&](Value value, const OpRule::Dims &dims) {
    auto &parts = dimsOf(value);
    for (auto [dim, names] : llvm::enumerate(dims)) {
      List list;
      for (unsigned name : names)
        if (rule.loops[name].size != 1)
          list.push_back(first + name);
      unify(parts[dim], list);
    }
  };
  for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
    if (!isSplat(operand))
      connectValue(operand, dims);
  for (auto [result, dims] : llvm::zip(op->getResults(), rule.results))
    connectValue(result, dims);
  connectGroups(op, rule, first);
  computations[op] = {&rule, first};
  return success();
}

LogicalResult Factors::build() {
  // A tensor of state is the same in all programs.
  llvm::StringMap<Value> state;
  auto connectState = [&](StringAttr name, Value value) {
    if (!name)
      return;
    auto [known, isNew] = state.try_emplace(name.getValue(), value);
    if (!isNew)
      unify(known->second, value);
  };
  for (auto function : module.getOps<func::FuncOp>()) {
    if (callees.isPointwise(function))
      continue;
    for (BlockArgument argument : function.getArguments())
      connectState(function.getArgAttrOfType<StringAttr>(
                       argument.getArgNumber(), graph::kStateAttr),
                   argument);
    Operation *ret = function.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(ret->getOperands()))
      connectState(
          function.getResultAttrOfType<StringAttr>(i, graph::kStateAttr),
          value);
    WalkResult walked = function.getBody().walk([&](Operation *op) {
      return failed(connect(op)) ? WalkResult::interrupt()
                                 : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
  }
  findMatrices();
  return success();
}

// The nodes of these loops of an op's rule.
Factors::List Factors::loopsOf(Operation *op, const OpRule::Dim &names) const {
  const auto &[rule, first] = computations.at(op);
  List nodes;
  for (unsigned name : names)
    if (rule->loops[name].size != 1)
      nodes.push_back(first + name);
  return nodes;
}

// Whether a use divides the matrix as its value does. Appends the argument of a
// block to which a call passes it.
bool Factors::isReadAsMade(OpOperand &use,
                           SmallVectorImpl<Value> &arguments) const {
  auto call = dyn_cast<func::CallOp>(use.getOwner());
  auto known = computations.find(use.getOwner());
  if (!call && known == computations.end())
    return false;
  Value argument;
  if (call) {
    argument = callees.of(call).getArgument(use.getOperandNumber());
    arguments.push_back(argument);
  }
  for (auto [i, dim] : llvm::enumerate(values.at(use.get()))) {
    const List read =
        call ? values.at(argument)[i]
             : loopsOf(use.getOwner(),
                       known->second.rule->operands[use.getOperandNumber()][i]);
    if (expand(dim) != expand(read))
      return false;
  }
  return true;
}

bool Factors::isShardable(Value argument, unsigned dim, unsigned factor) const {
  auto found = quantized.find(argument);
  if (found == quantized.end())
    return true;
  Operation *op = found->second->getOwner();
  const OpRule &rule = *computations.at(op).rule;
  for (unsigned name : rule.operands[found->second->getOperandNumber()][dim]) {
    const size_t count = expand(loopsOf(op, {name})).size();
    if (factor < count)
      return rule.loops[name].kind == LoopKind::parallel && isReadAsMade(op);
    factor -= count;
  }
  return false;
}

void Factors::findMatrices() {
  module.walk([&](graph::DequantizeOp op) {
    for (OpOperand &operand : op->getOpOperands())
      quantized[operand.get()] = &operand;
    SmallVector<Value> open{op.getResult()};
    while (!open.empty()) {
      Value matrix = open.pop_back_val();
      matrices.insert(matrix);
      for (OpOperand &use : matrix.getUses())
        if (!isReadAsMade(use, open))
          readOtherwise.insert(op);
    }
  });
}

//===--- queries ----------------------------------------------------------===//

Factors::Atoms Factors::atoms(ArrayRef<unsigned> list) const {
  Atoms out;
  for (unsigned node : expand(list))
    out.push_back({nodes[node].size, node});
  return out;
}

SmallVector<Factors::Atoms, 4> Factors::of(Value value) const {
  SmallVector<Atoms, 4> dims;
  auto known = values.find(value);
  for (auto [i, size] : llvm::enumerate(tensorType(value).getShape()))
    dims.push_back(known == values.end() ? Atoms{{size, kNoColor}}
                                         : atoms(known->second[i]));
  return dims;
}

Factors::Computation Factors::of(Operation *op) const {
  auto [rule, first] = computations.at(op);
  Computation computation{*rule, {}};
  for (auto [name, loopDim] : llvm::enumerate(rule->loops))
    computation.loops.push_back(
        loopDim.size == 1 ? Atoms()
                          : atoms(static_cast<unsigned>(first + name)));
  return computation;
}

void Factors::appendKey(Value value, SmallVectorImpl<uint64_t> &key) const {
  auto known = values.find(value);
  if (known == values.end())
    return key.push_back(kNoColor);
  for (const List &dim : known->second) {
    List parts = expand(dim);
    key.push_back(parts.size());
    llvm::append_range(key, parts);
  }
}

void Factors::appendKey(Operation *op, SmallVectorImpl<uint64_t> &key) const {
  auto [rule, first] = computations.at(op);
  key.push_back(reinterpret_cast<uintptr_t>(rule));
  for (auto [name, loopDim] : llvm::enumerate(rule->loops)) {
    if (loopDim.size == 1)
      continue;
    List parts;
    expand(first + name, parts);
    key.push_back(parts.size());
    llvm::append_range(key, parts);
  }
}
