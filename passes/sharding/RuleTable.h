// The sharding rules of each op family. Internal to Rule.cpp and Rules*.cpp.
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

/// Every operand and result has the loop dimensions of the first result.
OpRule pointwiseRule(mlir::Operation *op);
/// A rule without shardable loop dimensions: every device computes the op.
OpRule wholeRule(mlir::Operation *op);

} // namespace tessera::sharding
