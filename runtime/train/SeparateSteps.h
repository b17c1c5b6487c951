// The programs of `optimizer.update: separate`: @forward_backward adds the
// gradients of a batch to sums in the state, and @optimizer_step makes a step
// of them. Names that the compiler and the runtime share.
#pragma once

namespace tessera {

inline constexpr const char *kForwardBackward = "forward_backward";
inline constexpr const char *kOptimizerStep = "optimizer_step";
/// Trained parameters and what a step changes of the state, from a seed.
inline constexpr const char *kInitTrained = "init_trained";

/// The sum of a parameter's gradients is the state "<parameter>.gradient".
inline constexpr const char *kGradientSuffix = ".gradient";
/// Output of @forward_backward, f32[]: the terms that its loss is a mean over.
/// Gradients are of the sum of their losses.
inline constexpr const char *kTermsOutput = "terms";
/// Input of @optimizer_step, f32[1]: what it multiplies the sums by. 1 / terms
/// of all batches since the last step: as one step over all of them. Where the
/// norm of the gradients is not finite, only the sums change: to zero.
inline constexpr const char *kScaleInput = "scale";

} // namespace tessera
