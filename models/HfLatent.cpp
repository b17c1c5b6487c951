// Latent attention: sizes of heads, and the factor of their scores. Sources:
// the configuration and modeling files of DeepSeek-V2 and V3 in transformers.
#include <algorithm>
#include <cmath>

#include "models/HfReaders.h"

namespace tessera::models {

void readLatentHeads(ConfigFields &fields, ModelSpec &spec) {
  constexpr int64_t most = 1 << 16;
  LatentSpec latent;
  latent.rank = fields.size("kv_lora_rank", maxWidth, 512);
  // Absent means the class's default, null that queries are not compressed.
  if (!fields.written("q_lora_rank") || fields.find("q_lora_rank"))
    latent.queryRank = fields.size("q_lora_rank", maxWidth, 1536);
  latent.unrotated = fields.size("qk_nope_head_dim", most, 128);
  latent.rotated = fields.size("qk_rope_head_dim", most, 64);
  latent.valueDim = fields.size("v_head_dim", most, 128);
  spec.headDim = latent.unrotated + latent.rotated;
  spec.rotaryDim = latent.rotated;
  // V2 has complex factors of neighbours, and no key. Null is false.
  spec.interleavedRope =
      spec.family == Family::DeepseekV2 ||
      fields.flag("rope_interleave", !fields.written("rope_interleave"));
  if (spec.kvHeads != spec.heads)
    fields.fail("num_key_value_heads",
                fmt::format("{} must be num_attention_heads = {} in latent "
                            "attention",
                            spec.kvHeads, spec.heads));
  if (latent.rotated % 2 != 0)
    fields.fail("qk_rope_head_dim",
                fmt::format("{} is odd; rope needs pairs", latent.rotated));
  // transformers 5 writes these; its head_dim is what rotates.
  fields.requireNeutral("head_dim", latent.rotated,
                        "it must be qk_rope_head_dim in this architecture");
  fields.requireNeutral("qk_head_dim", spec.headDim,
                        "it must be qk_nope_head_dim + qk_rope_head_dim");
  const int64_t widest =
      std::max(spec.headDim, latent.unrotated + latent.valueDim);
  if (spec.heads > maxIntermediate / widest)
    fields.fail("num_attention_heads",
                fmt::format("{} heads of {} are wider than {}", spec.heads,
                            widest, maxIntermediate));
  spec.latent = latent;
}

void scaleLatentScores(ModelSpec &spec) {
  const RopeSpec &rope = *spec.rope;
  const double mscale = rope.mscaleAllDim.value_or(0);
  if (mscale == 0 || rope.factor <= 1)
    return;
  // scores * m^2 = scores / sqrt(head_dim / m^4), with YaRN's m.
  const double temperature = 0.1 * mscale * std::log(rope.factor) + 1;
  spec.queryScalar = double(spec.headDim) / std::pow(temperature, 4);
}

} // namespace tessera::models
