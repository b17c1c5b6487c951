// Plans the ops on rows of experts, which are in device-local order.
#include "dialects/graph/GraphExchangeOps.h"
#include "passes/sharding/Cut.h"
#include "passes/sharding/LocalOps.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

bool Shardings::takesOwnRows(OpOperand &operand, const OpRule &rule) const {
  if (rule.isPointwise)
    return !isSplat(operand.get());
  return llvm::is_contained(rule.ownOperands, operand.getOperandNumber());
}

LogicalResult Shardings::checkOwnRows(Operation *op, const OpRule &rule) const {
  for (OpOperand &operand : op->getOpOperands())
    if (!asUsed(operand.get()).own.empty() && !takesOwnRows(operand, rule))
      return op->emitOpError("has no sharding rule for rows in device-local "
                             "order, but operand ")
             << operand.getOperandNumber() << " has such rows";
  return success();
}

// Shards groups along the factor with this sharding group, or the first factor
// that is large enough.
bool Shardings::cutGroups(Cut &cut, unsigned axis,
                          std::optional<Color> color) const {
  unsigned groups = *cut.computation.rule.groups;
  for (auto [factor, atom] :
       llvm::zip(cut.loops[groups], cut.computation.loops[groups]))
    if ((!color || atom.color == *color) && fits(factor, axis)) {
      factor.axes.push_back(axis);
      return true;
    }
  return false;
}

// An op on rows in device-local order is sharded as they are: with their
// tokens, or by their groups.
bool Shardings::followRows(Operation *op, unsigned axis, Cut &cut) const {
  const OpRule &rule = cut.computation.rule;
  bool follows = false;
  for (OpOperand &operand : op->getOpOperands()) {
    const Placement &place = asUsed(operand.get());
    if (!takesOwnRows(operand, rule) || !llvm::is_contained(place.own, axis))
      continue;
    if (!std::exchange(follows, true))
      cut.own.push_back(axis);
    auto rows = findCut(place, axis);
    if (!rows)
      continue;
    const OpRule::Dims &dims = rule.operands[operand.getOperandNumber()];
    if (Factor *factor = factorOf(cut, dims[rows->first], rows->second))
      factor->axes.push_back(axis);
    return true;
  }
  if (follows && rule.groups)
    (void)cutGroups(cut, axis, std::nullopt);
  return follows;
}

bool Shardings::cutTokens(Operation *op, unsigned axis, Color color,
                          Cut &cut) const {
  for (auto [name, loopDim] : llvm::enumerate(cut.computation.rule.loops))
    for (auto [k, factor, atom] :
         llvm::enumerate(cut.loops[name], cut.computation.loops[name]))
      if (loopDim.kind == LoopKind::own &&
          name != cut.computation.rule.groups && atom.color == color &&
          fits(factor, axis) && keepsSharding(op, cut, name, k, axis)) {
        factor.axes.push_back(axis);
        return true;
      }
  return false;
}

// Rows that will be sent are those of the device's tokens. Groups must divide
// evenly among all devices that exchange, and no other axis may shard them.
bool Shardings::numberToSend(Operation *op, unsigned axis, Cut &cut) const {
  const DimPlacement &groups = cut.loops[*cut.computation.rule.groups];
  return llvm::is_contained(strategy->exchanged, axis) &&
         llvm::any_of(op->getUsers(), llvm::IsaPred<graph::SendRowsOp>) &&
         groups.size() == 1 && !groups[0].isCut() &&
         groups[0].size % mesh.size(strategy->exchanged) == 0 &&
         llvm::any_of(strategy->colors[axis], [&](Color color) {
           return cutTokens(op, axis, color, cut);
         });
}

// The users of a group_rows, including those of rows that were sent.
static SmallVector<Operation *> usersOfRows(Operation *op) {
  SmallVector<Operation *> users(op->getUsers());
  for (Operation *user : op->getUsers())
    if (isa<graph::SendRowsOp>(user))
      llvm::append_range(users, user->getUsers());
  return users;
}

// Follows the most important sharding group among those of the groups, of the
// tokens, and of the other operands of matmuls on rows: then rows are whole.
void Shardings::numberRows(Operation *op, unsigned axis, Cut &cut) const {
  auto hasColor = [](ArrayRef<Factors::Atom> atoms, Color color) {
    return llvm::any_of(
        atoms, [&](Factors::Atom atom) { return atom.color == color; });
  };
  auto multipliesBy = [&](Operation *user, Color color) {
    Factors::Computation product = factors.of(user);
    return product.rule.groups &&
           llvm::any_of(llvm::zip(product.rule.loops, product.loops),
                        [&](const auto &pair) {
                          const auto &[loopDim, atoms] = pair;
                          return loopDim.kind != LoopKind::own &&
                                 loopDim.kind != LoopKind::whole &&
                                 hasColor(atoms, color);
                        });
  };
  if (numberToSend(op, axis, cut)) {
    cut.own.push_back(axis);
    return;
  }
  // An axis along which rows are sent shards no tokens of rows that stay; and
  // if there is one, no other axis shards groups.
  auto isSent = [&](unsigned one) {
    return llvm::is_contained(strategy->exchanged, one);
  };
  bool sends = llvm::any_of(cut.own, isSent);
  SmallVector<Operation *> users = usersOfRows(op);
  for (Color color : strategy->colors[axis]) {
    if ((!sends && cutGroups(cut, axis, color)) ||
        (!isSent(axis) && cutTokens(op, axis, color, cut))) {
      cut.own.push_back(axis);
      return;
    }
    for (Operation *user : users)
      if (factors.computes(user) && multipliesBy(user, color))
        return;
  }
}

// Whether the loop dimension numbers rows in device-local order. Only the axes
// of that order shard them: a slice of a
// device's rows has no meaning for others.
bool Shardings::numbersOwnRows(Operation *op, const OpRule &rule,
                               unsigned loopDim) const {
  if (!rule.isPointwise)
    return false;
  for (auto [operand, dims] : llvm::zip(op->getOperands(), rule.operands))
    if (!asUsed(operand).own.empty())
      return llvm::is_contained(dims[0], loopDim);
  return false;
}

// The room for rows that an op reads and makes: what its operands have. It
// concerns rows, not the groups that come with them.
int64_t Shardings::roomOf(Operation *op) const {
  int64_t room = 0;
  for (Value operand : op->getOperands())
    room = std::max(room, asUsed(operand).room);
  return room;
}

// The room for rows that `op` sends.
int64_t Shardings::roomToSend(Operation *op, const Placement &home,
                              const Placement &sent) const {
  auto send = dyn_cast<graph::SendRowsOp>(op);
  if (!send || !send.getBuffer() || exchangedAxes(home, sent).empty())
    return 0;
  return roomForRows(tensorType(send.getRows()).getDimSize(0),
                     send.getBuffer()->convertToDouble(), mesh, home, sent);
}
