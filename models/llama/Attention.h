// Parts of a layer's attention.
#pragma once
#include "models/Builder.h"
#include "models/Rope.h"

namespace tessera::models {

/// Rotary positions of the layer, if its kind has them.
std::optional<RopeFrequencies> frequenciesOf(const Scope &scope, mlir::Value x,
                                             const LayerKind &kind);

/// x [batch, tokens, heads, head_dim], of which the first spec.rotaryWidth()
/// elements of a head are rotated, all if it has no more.
mlir::Value rotate(const Scope &scope, mlir::Value x,
                   const RopeFrequencies &frequencies);

/// A mixer of Mamba-2 (StateSpaceSpec) of x [batch, tokens, hidden].
mlir::Value mixer(const Scope &scope, mlir::Value x);

/// Multi-head latent attention (LatentSpec) of x [batch, tokens, hidden] →
/// [batch, tokens, heads * valueDim], before the output projection.
mlir::Value latentAttention(const Scope &scope, mlir::Value x,
                            const LayerKind &kind, llvm::StringRef path);

} // namespace tessera::models
