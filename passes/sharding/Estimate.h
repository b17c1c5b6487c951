// What placements cost: seconds of one step, of which only ratios between
// strategies of one module mean anything.
#pragma once
#include "passes/sharding/Shardings.h"

namespace tessera::sharding {

/// How communication is priced beside computing.
struct LinkPrice {
  double weight = 1.0;
  bool latency = true; ///< whether messages cost time whatever their size
  /// Only what colors differ in: collectives, one for each use of a value. Not
  /// the copies beside them, nor what settles or enters and leaves loops.
  bool coarse = false;
};

/// Seconds of single ops and moves.
class OpCosts {
public:
  OpCosts(const Mesh &mesh, LinkPrice price) : mesh(mesh), price(price) {}

  /// Of one op cut so, and of the collectives that it is made of.
  double ofOp(mlir::Operation *op, const Plan &plan) const;
  /// Of a value that is wanted elsewhere than it is.
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
};

/// Whether users of the value share what moves it: all but those of a program's
/// arguments do (WriteShardings).
bool sharesMoves(mlir::Value value);

/// Of all programs but @init.
double estimate(mlir::ModuleOp module, const Mesh &mesh,
                const Shardings &shardings, LinkPrice price);

} // namespace tessera::sharding
