// Reads rotary settings in two dialects. v5 has one section with all of them;
// v4 has theta at the top level, and a section only if frequencies are scaled.
#include "models/HfReaders.h"

#include <array>

#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

constexpr double maxTheta = 1e15;
constexpr double maxFactor = 1e6;
constexpr int64_t maxContext = int64_t(1) << 27;

RopeType readType(ConfigFields &fields) {
  constexpr std::array<RopeType, 6> types = {
      RopeType::Default, RopeType::Linear,   RopeType::Dynamic,
      RopeType::Yarn,    RopeType::LongRope, RopeType::Llama3};
  std::string given = fields.text({"rope_type", "type"}, "default");
  if (given == "su") // longrope's first name
    return RopeType::LongRope;
  std::vector<std::string_view> names;
  for (RopeType type : types) {
    if (name(type) == given)
      return type;
    names.push_back(name(type));
  }
  fields.fail("rope_type", fmt::format("{} is not supported; use {}",
                                       quote(given), choices(names)));
  return RopeType::Default;
}

/// The sequence length of training; a v4 config may state it outside the
/// section.
int64_t readOriginal(ConfigFields &section, std::optional<int64_t> outer,
                     std::optional<int64_t> fallback) {
  constexpr const char *key = "original_max_position_embeddings";
  int64_t inner = section.size(key, maxContext, outer ? outer : fallback);
  if (outer && inner != *outer)
    section.fail(key, fmt::format("{} conflicts with {} outside the section; "
                                  "keep one of the two",
                                  inner, *outer));
  return inner;
}

void readYarn(ConfigFields &section, const ModelSpec &spec,
              std::optional<int64_t> outer, RopeSpec &rope) {
  rope.originalMaxPosition = readOriginal(section, outer, spec.maxPositions);
  // A stated factor takes precedence; the ratio of lengths is only its default.
  // (In some 4.x releases of the reference the ratio took precedence, which
  // makes the published long-context settings of Qwen2 a no-op.)
  rope.factor = section.number("factor", 1, maxFactor,
                               double(spec.maxPositions) /
                                   double(rope.originalMaxPosition));
  rope.attentionFactor = section.maybeNumber("attention_factor", 1e-6, 1e6);
  rope.mscale = section.maybeNumber("mscale", 0, 1e6);
  rope.mscaleAllDim = section.maybeNumber("mscale_all_dim", 0, 1e6);
  rope.betaFast = section.number("beta_fast", 1e-6, 1e6, 32.0);
  rope.betaSlow = section.number("beta_slow", 1e-6, 1e6, 1.0);
  rope.truncate = section.flag("truncate", true);
  if (rope.betaFast < rope.betaSlow)
    section.fail("beta_fast", fmt::format("{} is less than beta_slow = {}",
                                          rope.betaFast, rope.betaSlow));
}

void readLongRope(ConfigFields &section, const ModelSpec &spec,
                  std::optional<int64_t> outer, RopeSpec &rope) {
  rope.originalMaxPosition = readOriginal(section, outer, {});
  double ratio = double(spec.maxPositions) / double(rope.originalMaxPosition);
  rope.factor = section.number("factor", 1e-6, maxFactor, ratio);
  rope.attentionFactor = section.maybeNumber("attention_factor", 1e-6, 1e6);
  rope.shortFactor = section.numbers("short_factor", 1e-6, 1e9);
  rope.longFactor = section.numbers("long_factor", 1e-6, 1e9);
  auto checkLength = [&](const char *key, const std::vector<double> &list) {
    if (int64_t(list.size()) != spec.rotaryWidth() / 2)
      section.fail(key, fmt::format("has {} entries, {} is {}", list.size(),
                                    spec.rotaryDim ? "the rotated part / 2"
                                                   : "head_dim / 2",
                                    spec.rotaryWidth() / 2));
  };
  checkLength("short_factor", rope.shortFactor);
  checkLength("long_factor", rope.longFactor);
}

void readLlama3(ConfigFields &section, std::optional<int64_t> outer,
                RopeSpec &rope) {
  rope.factor = section.number("factor", 1, maxFactor);
  rope.lowFreqFactor = section.number("low_freq_factor", 1e-6, 1e6);
  rope.highFreqFactor = section.number("high_freq_factor", 1e-6, 1e6);
  rope.originalMaxPosition = readOriginal(section, outer, {});
  if (section.ok() && rope.highFreqFactor <= rope.lowFreqFactor)
    section.fail("high_freq_factor",
                 fmt::format("{} must be greater than low_freq_factor = {}",
                             rope.highFreqFactor, rope.lowFreqFactor));
}

/// HunYuan's "dynamic" has a base that is fixed. With it the reference ignores
/// the factor and yarn's keys.
void readAlpha(ConfigFields &section, RopeSpec &rope) {
  rope.alpha = section.number("alpha", 0, maxFactor, 0.0);
  if (rope.alpha == 0)
    return;
  rope.factor = 1;
  constexpr std::string_view unused[] = {"beta_fast", "beta_slow", "mscale",
                                         "mscale_all_dim"};
  section.ignore(unused);
}

RopeSpec readSection(ConfigFields &section, const LlamaTraits &traits,
                     const ModelSpec &spec, double theta,
                     std::optional<int64_t> outer) {
  RopeSpec rope;
  rope.type = readType(section);
  rope.theta = section.number("rope_theta", 1.0001, maxTheta, theta);
  constexpr std::string_view partial[] = {"partial_rotary_factor"};
  if (traits.rotaryShare > 0)
    section.ignore(partial); // readRotaryShare has read it
  else
    section.requireNeutral(partial[0], 1.0,
                           "rope covers the whole head in these families");
  switch (rope.type) {
  case RopeType::Default:
    break;
  case RopeType::Linear:
  case RopeType::Dynamic:
    rope.factor = section.number("factor", 1, maxFactor);
    if (spec.family == Family::HunYuan)
      readAlpha(section, rope);
    if (rope.type == RopeType::Dynamic && spec.rotaryWidth() < 4)
      section.fail("rope_type",
                   "'dynamic' requires at least 4 rotated elements of a head");
    break;
  case RopeType::Yarn:
    readYarn(section, spec, outer, rope);
    break;
  case RopeType::LongRope:
    readLongRope(section, spec, outer, rope);
    break;
  case RopeType::Llama3:
    readLlama3(section, outer, rope);
    break;
  }
  section.finish(fmt::format(
      " for rope type '{}'; remove it if it has no effect", name(rope.type)));
  return rope;
}

std::optional<RopeSpec> readIfGiven(ConfigFields &fields, const char *key,
                                    const LlamaTraits &traits,
                                    const ModelSpec &spec, double theta,
                                    std::optional<int64_t> outer) {
  const Json *object = fields.section(key);
  if (!object)
    return {};
  ConfigFields section(*object, fields.file(), std::string(key) + ".");
  RopeSpec rope = readSection(section, traits, spec, theta, outer);
  fields.adopt(section.status());
  return rope;
}

} // namespace

void readLayerRopes(ConfigFields &fields, const LlamaTraits &traits,
                    ModelSpec &spec) {
  constexpr const char *localKey = "rope_local_base_freq";
  const bool hasBase = traits.ropes == LlamaTraits::LocalBase;
  const double localTheta = hasBase ? 10000.0 : traits.ropeTheta;
  const Json *both = fields.section("rope_parameters");
  RopeSpec local;
  if (both && both->contains("full_attention")) {
    ConfigFields parts(*both, fields.file(), "rope_parameters.");
    auto read = [&](const char *key, double absent) {
      RopeSpec plain;
      plain.theta = absent;
      return readIfGiven(parts, key, traits, spec, absent, {}).value_or(plain);
    };
    spec.rope = read("full_attention", traits.ropeTheta);
    local = read("sliding_attention", localTheta);
    parts.finish("; it has one section for each type of layer");
    fields.adopt(parts.status());
    auto mustAgree = [&](const char *key, double theta) {
      if (auto given = fields.maybeNumber(key, 1.0001, maxTheta);
          given && *given != theta)
        fields.fail(key, fmt::format("{} conflicts with {} in "
                                     "'rope_parameters'; keep one of the two",
                                     *given, theta));
    };
    mustAgree("rope_theta", spec.rope->theta);
    if (hasBase)
      mustAgree(localKey, local.theta);
    fields.requireNeutral("rope_scaling", nullptr,
                          "'rope_parameters' has all of it");
  } else {
    spec.rope = readRope(fields, traits, spec);
    local.theta = hasBase
                      ? fields.number(localKey, 1.0001, maxTheta, localTheta)
                      : spec.rope->theta;
  }
  if (!spec.windows.empty() && local != *spec.rope)
    spec.localRope = local;
}

void readRotaryShare(ConfigFields &fields, const LlamaTraits &traits,
                     ModelSpec &spec) {
  // v4 has the fraction outside the section in which v5 has it.
  constexpr const char *key = "partial_rotary_factor";
  std::optional<double> share =
      fields.maybeNumber(Key(key, traits.shareName), 1e-6, 1);
  for (const char *name : {"rope_parameters", "rope_scaling"}) {
    const Json *section = fields.section(name);
    if (!section)
      continue;
    ConfigFields inner(*section, fields.file(), std::string(name) + ".");
    auto given = inner.maybeNumber(key, 1e-6, 1);
    fields.adopt(inner.status());
    if (given && share && *given != *share)
      fields.fail(
          key, fmt::format("conflicts with '{}'; keep one of the two", name));
    if (given)
      share = given;
  }
  const double part = share.value_or(traits.rotaryShare);
  auto width = int64_t(double(spec.headDim) * part);
  if (width < 2 || width % 2 != 0)
    fields.fail(key, fmt::format("{} of head_dim = {} is {} elements; rope "
                                 "needs pairs",
                                 part, spec.headDim, width));
  spec.rotaryDim = width == spec.headDim ? 0 : width;
}

RopeSpec readRope(ConfigFields &fields, const LlamaTraits &traits,
                  const ModelSpec &spec) {
  std::optional<double> theta =
      fields.maybeNumber(Key("rope_theta", traits.thetaName), 1.0001, maxTheta);
  std::optional<int64_t> outer;
  if (fields.find("original_max_position_embeddings"))
    outer = fields.size("original_max_position_embeddings", maxContext);
  else if (spec.family == Family::Phi3)
    outer = 4096; // the reference's default
  double orDefault = theta.value_or(traits.ropeTheta);
  auto v5 =
      readIfGiven(fields, "rope_parameters", traits, spec, orDefault, outer);
  auto v4 = readIfGiven(fields, "rope_scaling", traits, spec,
                        theta ? *theta : (v5 ? v5->theta : orDefault), outer);
  if (v4 && v5 && *v4 != *v5)
    fields.fail("rope_scaling",
                "conflicts with 'rope_parameters'; keep one of the two");
  RopeSpec rope;
  rope.theta = orDefault;
  if (v5 || v4)
    rope = v5 ? *v5 : *v4;
  if (theta && rope.theta != *theta)
    fields.fail("rope_theta",
                fmt::format("{} conflicts with {} = {}; keep one of the two",
                            *theta,
                            v5 ? "'rope_parameters.rope_theta'"
                               : "'rope_scaling.rope_theta'",
                            rope.theta));
  // Phi-3's configs have this key for any rope type.
  if (outer && rope.originalMaxPosition == 0 && spec.family != Family::Phi3)
    fields.fail("original_max_position_embeddings",
                fmt::format("has no meaning for rope type '{}'; remove it",
                            name(rope.type)));
  return rope;
}

} // namespace tessera::models
