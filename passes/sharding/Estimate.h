// The cost of placements: seconds of one step. Only ratios between strategies
// of one module mean anything.
#pragma once
#include "passes/sharding/Shardings.h"

namespace tessera::sharding {

/// The price of communication relative to computing.
struct LinkPrice {
  double weight = 1.0;
  bool latency = true; ///< whether a message has a cost without bytes
  /// Only what differs between sharding groups: collectives, one for each use
  /// of a value. No copies, no reshards of gradients to their state, none of
  /// values that enter or leave loops.
  bool coarse = false;
};

/// Seconds of single ops and reshards.
class OpCosts {
public:
  OpCosts(const Mesh &mesh, LinkPrice price);

  /// Of one op under a plan, including the collectives inside it.
  double ofOp(mlir::Operation *op, const Plan &plan) const;
  /// Of a reshard.
  double ofMoving(mlir::Value value, const Placement &from,
                  const Placement &to) const;

private:
  double ofComputing(mlir::Operation *op, const Plan &plan) const;
  double ofPassingKeys(mlir::Operation *op, const Plan &plan) const;
  double ofExchanging(mlir::Operation *op, const Plan &plan) const;
  double ofLink(unsigned axis, double bytes) const;
  int64_t pieces(const Placement &placement) const;

  const Mesh &mesh;
  LinkPrice price;
  planner::CollectiveCost collectives; ///< of the price's links
};

/// The estimate of all programs except @init.
double estimate(mlir::ModuleOp module, const Mesh &mesh,
                const Shardings &shardings, LinkPrice price);

} // namespace tessera::sharding
