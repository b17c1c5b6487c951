// How a token is drawn from its logits: the semantics of graph.sample, and what
// the host does if it samples itself. From the weights on, all numbers are
// integers, so that the order of addition does not matter: a CPU, a GPU and
// this code draw the same token from the same logits.
//
// The weight of a logit l is the float 2^((l - best) / T × log2 e), which
// counts in whole units of 2^-40. Of tokens of one weight the lower is the
// likelier.
#pragma once
#include <cstdint>
#include <span>

namespace tessera {

struct TokenChoice {
  float temperature = 0; ///< 0: the likeliest token
  float minP = 0;        ///< only tokens this likely, measured by the likeliest
  uint32_t topK = 0;     ///< only the k likeliest of these; 0: all
  /// Of what is then left, only the fewest likeliest tokens that have this part
  /// of all weights, in units of 2^-32; 0: all.
  uint32_t topP = 0;
  uint64_t random = 0; ///< which of them: its part of 2^64
};

/// Changes to a token's logit before it is sampled.
struct LogitChange {
  float added = 0;
  float above = 1, below = 1; ///< divisors of what is positive, and is not
  float subtracted = 0;

  float of(float logit) const {
    logit += added;
    return logit / (logit > 0 ? above : below) - subtracted;
  }
};

/// Logits of a row, so that the sum of their weights is below 2^63.
inline constexpr int64_t kMostChoices = (int64_t(1) << 23) - 1;

/// Results other than a token.
inline constexpr int32_t kNotANumber = -1, ///< one of the logits is none
    kNoToken = -2; ///< the largest logit is infinite: none is left, as a rule

/// Logits of minus infinity are left out.
int32_t chooseToken(std::span<const float> logits, const TokenChoice &choice);

namespace token_choice {
/// 2^f = 1 + f (c0 + f (c1 + …)) on [0, 1], each step one fused
/// multiplication; error 2^-23.8.
inline constexpr float kPower[] = {0x1.62e42cp-1f,  0x1.ebfd58p-3f,
                                   0x1.c68912p-5f,  0x1.3d0b92p-7f,
                                   0x1.46d64ep-10f, 0x1.c54174p-13f};
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr int kFraction = 40; ///< the weight 1 is 2^40
} // namespace token_choice

} // namespace tessera
