// Rotary frequencies from a RopeSpec.
#pragma once
#include "models/ModelSpec.h"

namespace tessera::models {

/// Angle of pair i at position p: p * inverseFrequencies[i]; cos and sin of it
/// are multiplied by attentionScaling.
struct RopeFrequencies {
  std::vector<double> inverseFrequencies; ///< [pairs], radians a token
  double attentionScaling = 1.0;
};

/// Frequencies for sequences of at most `sequence` tokens. Only `dynamic` and
/// `longrope` depend on it: both change once it passes the length that the
/// model was trained at. `rope` is one of the spec's own.
/// Sources: RoFormer (2104.09864) 3.4; linear: 2306.15595; dynamic: NTK-aware
/// scaling as in transformers; yarn: 2309.00071 3.2; longrope: 2402.13753;
/// llama3: the Llama 3.1 reference code.
RopeFrequencies ropeFrequencies(const ModelSpec &spec, const RopeSpec &rope,
                                int64_t sequence);
/// The same by spec.rope.
RopeFrequencies ropeFrequencies(const ModelSpec &spec, int64_t sequence);

} // namespace tessera::models
