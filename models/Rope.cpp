// The six methods by which public checkpoints scale rotary frequencies.
#include "models/Rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace tessera::models {
namespace {

std::vector<double> plain(double theta, int64_t headDim) {
  std::vector<double> inverse(static_cast<size_t>(headDim / 2));
  for (size_t i = 0; i < inverse.size(); ++i)
    inverse[i] = std::pow(theta, -2.0 * double(i) / double(headDim));
  return inverse;
}

/// Llama 3.1: long wavelengths are multiplied by factor, short ones are kept,
/// and those in between are interpolated by their rotations within the original
/// context.
void scaleLlama3(std::vector<double> &inverse, const RopeSpec &rope) {
  double context = double(rope.originalMaxPosition);
  for (double &frequency : inverse) {
    double turns = context * frequency / (2 * std::numbers::pi);
    double blend = (turns - rope.lowFreqFactor) /
                   (rope.highFreqFactor - rope.lowFreqFactor);
    blend = std::clamp(blend, 0.0, 1.0);
    frequency *= (1 - blend) / rope.factor + blend;
  }
}

/// YaRN eq. 23's bounds: the (real-valued) index of the pair with `rotations`
/// rotations over the original context.
double correctionPair(double rotations, const RopeSpec &rope, int64_t headDim) {
  double wavelength =
      double(rope.originalMaxPosition) / (rotations * 2 * std::numbers::pi);
  return double(headDim) * std::log(wavelength) / (2 * std::log(rope.theta));
}

void scaleYarn(std::vector<double> &inverse, const RopeSpec &rope,
               int64_t headDim) {
  double low = correctionPair(rope.betaFast, rope, headDim);
  double high = correctionPair(rope.betaSlow, rope, headDim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, double(headDim - 1));
  if (low == high)
    high += 0.001; // as in the reference: avoids a ramp of zero width
  for (size_t i = 0; i < inverse.size(); ++i) {
    double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] *= ramp / rope.factor + (1 - ramp);
  }
}

/// YaRN 3.4: softmax temperature folded into cos and sin.
double yarnScaling(const RopeSpec &rope) {
  if (rope.attentionFactor)
    return *rope.attentionFactor;
  auto temperature = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale.value_or(0) != 0 && rope.mscaleAllDim.value_or(0) != 0)
    return temperature(*rope.mscale) / temperature(*rope.mscaleAllDim);
  return temperature(1.0);
}

double longRopeScaling(const RopeSpec &rope) {
  if (rope.attentionFactor)
    return *rope.attentionFactor;
  if (rope.factor <= 1)
    return 1.0;
  return std::sqrt(1 + std::log(rope.factor) /
                           std::log(double(rope.originalMaxPosition)));
}

/// NTK-aware: the base grows with the excess over the trained length, or is
/// fixed by alpha.
double dynamicTheta(const ModelSpec &spec, const RopeSpec &rope,
                    int64_t sequence) {
  double trained = double(spec.maxPositions);
  double length = std::max(double(sequence), trained);
  double stretch = rope.factor * length / trained - (rope.factor - 1);
  double dim = double(spec.rotaryWidth());
  if (rope.alpha > 0) // HunYuan: for any length
    stretch = rope.alpha;
  return rope.theta * std::pow(stretch, dim / (dim - 2));
}

} // namespace

RopeFrequencies ropeFrequencies(const ModelSpec &spec, int64_t sequence) {
  assert(spec.rope && "the model has no rotary embedding");
  return ropeFrequencies(spec, *spec.rope, sequence);
}

RopeFrequencies ropeFrequencies(const ModelSpec &spec, const RopeSpec &rope,
                                int64_t sequence) {
  const int64_t width = spec.rotaryWidth();
  RopeFrequencies result;
  std::vector<double> &inverse = result.inverseFrequencies;
  inverse = plain(rope.theta, width);
  switch (rope.type) {
  case RopeType::Default:
    break;
  case RopeType::Linear:
    for (double &frequency : inverse)
      frequency /= rope.factor;
    break;
  case RopeType::Dynamic:
    inverse = plain(dynamicTheta(spec, rope, sequence), width);
    break;
  case RopeType::Yarn:
    scaleYarn(inverse, rope, width);
    result.attentionScaling = yarnScaling(rope);
    break;
  case RopeType::LongRope: {
    const std::vector<double> &factors = sequence > rope.originalMaxPosition
                                             ? rope.longFactor
                                             : rope.shortFactor;
    for (size_t i = 0; i < inverse.size(); ++i)
      inverse[i] /= factors[i];
    result.attentionScaling = longRopeScaling(rope);
    break;
  }
  case RopeType::Llama3:
    scaleLlama3(inverse, rope);
    break;
  }
  return result;
}

} // namespace tessera::models
