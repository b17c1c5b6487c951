// The postcondition of assign-shardings.
#include "passes/sharding/Factors.h"
#include "passes/sharding/Placement.h"
#include "passes/sharding/Sharding.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::sharding;
using graph::tensorType;

namespace tessera {
#define GEN_PASS_DEF_VERIFYSHARDINGS
#include "passes/sharding/Passes.h.inc"
} // namespace tessera

namespace {
struct VerifyShardings : tessera::impl::VerifyShardingsBase<VerifyShardings> {
  using Base::Base;
  void runOnOperation() override {}
};
} // namespace
