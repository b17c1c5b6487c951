// The rules of op families, each in a file of its own; nobody but Rule.cpp and
// those files includes this.
#pragma once
#include "passes/sharding/Rule.h"
#include "llvm/ADT/DenseMap.h"

namespace tessera::sharding {

class RuleTable {
public:
  template <typename Op, typename Rule> void add(Rule rule) {
    rules[mlir::TypeID::get<Op>()] = [rule](mlir::Operation *op) {
      return rule(mlir::cast<Op>(op));
    };
  }
  std::function<OpRule(mlir::Operation *)> find(mlir::Operation *op) const {
    return rules.lookup(op->getName().getTypeID());
  }

private:
  llvm::DenseMap<mlir::TypeID, std::function<OpRule(mlir::Operation *)>> rules;
};

void addElementwiseRules(RuleTable &table);
void addShapeRules(RuleTable &table);
void addContractionRules(RuleTable &table);
void addCompositeRules(RuleTable &table);
void addRoutingRules(RuleTable &table);

/// Every operand and result of the op's first result's shape, loopDim by
/// loopDim.
OpRule pointwiseRule(mlir::Operation *op);
/// A rule without loops that may be cut: the op is computed everywhere.
OpRule wholeRule(mlir::Operation *op);

} // namespace tessera::sharding
