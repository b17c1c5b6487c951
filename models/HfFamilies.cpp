// Keys of single members of the Llama family. Sources: the configuration and
// modeling files of each in transformers.
#include <cmath>

#include "models/HfReaders.h"
#include "runtime/support/Text.h"

namespace tessera::models {
namespace {

constexpr double maxCap = 1e6;

/// A soft cap; an absent key has the reference's default, null means none.
std::optional<double> readCap(ConfigFields &fields, const char *key,
                              std::optional<double> absent) {
  if (!fields.written(key))
    return absent;
  return fields.maybeNumber(key, 1e-3, maxCap);
}

/// Early Gemma configs say "gelu" and mean its tanh form; `hidden_activation`
/// was added to resolve it.
void readGemmaActivation(ConfigFields &fields, ModelSpec &spec) {
  constexpr const char *meant = "gelu_pytorch_tanh";
  std::string old = fields.text("hidden_act", meant);
  if (old != meant && old != "gelu")
    fields.fail("hidden_act", fmt::format("activation {} is not supported; use "
                                          "{}",
                                          quote(old), meant));
  spec.activation = readActivation(fields, "hidden_activation", meant);
}

} // namespace

void readGemma(ConfigFields &fields, ModelSpec &spec) {
  readGemmaActivation(fields, spec);
  spec.normPlusOne = true;
  spec.embeddingScale = std::sqrt(double(spec.hidden));
  fields.requireNeutral("use_bidirectional_attention", false,
                        "tokens see only those before them");
  if (spec.family == Family::Gemma)
    return;
  const bool second = spec.family == Family::Gemma2;
  spec.postNorms = true;
  spec.queryScalar = fields.number("query_pre_attn_scalar", 1e-3, 1e9, 256.0);
  using Cap = std::optional<double>;
  spec.scoreCap =
      readCap(fields, "attn_logit_softcapping", second ? Cap(50) : Cap());
  spec.logitCap =
      readCap(fields, "final_logit_softcapping", second ? Cap(30) : Cap());
}

void readPhi3(ConfigFields &fields, ModelSpec &spec) {
  spec.fusedProjections = true;
  constexpr const char *noDropout =
      "only attention_dropout is supported in this architecture";
  fields.requireNeutral("embd_pdrop", 0.0, noDropout);
  fields.requireNeutral("resid_pdrop", 0.0, noDropout);
  constexpr const char *ofOthers = "this architecture has no such setting";
  fields.requireNeutral("lm_head_bias", false, ofOthers);
  fields.requireNeutral("full_attn_mod", 1, ofOthers);
  fields.requireNeutral("interpolate_factor", 1, ofOthers);
  // Models published before the reference supported the architecture name their
  // own code; the reference now ignores it.
  constexpr std::string_view ownCode[] = {"auto_map"};
  fields.ignore(ownCode);
  // v4 has the fraction outside the section in which v5 has it.
  const bool isWritten = fields.find("partial_rotary_factor") != nullptr;
  double share = fields.number("partial_rotary_factor", 1e-6, 1, 1.0);
  for (const char *name : {"rope_parameters", "rope_scaling"}) {
    const Json *section = fields.section(name);
    if (!section)
      continue;
    ConfigFields inner(*section, fields.file(), std::string(name) + ".");
    auto given = inner.maybeNumber("partial_rotary_factor", 1e-6, 1);
    fields.adopt(inner.status());
    if (given && isWritten && *given != share)
      fields.fail(
          "partial_rotary_factor",
          fmt::format("conflicts with '{}'; keep one of the two", name));
    share = given.value_or(share);
  }
  auto width = int64_t(double(spec.headDim) * share);
  if (width < 2 || width % 2 != 0)
    fields.fail("partial_rotary_factor",
                fmt::format("{} of head_dim = {} is {} elements; rope needs "
                            "pairs",
                            share, spec.headDim, width));
  spec.rotaryDim = width == spec.headDim ? 0 : width;
}

} // namespace tessera::models
