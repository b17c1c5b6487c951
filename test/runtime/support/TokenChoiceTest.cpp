// What TokenChoice.h says of a choice, held against doubles: the table of
// powers that kernels share, and which tokens are left and how often they come.
#include "runtime/support/TokenChoice.h"
#include "runtime/support/SplitMix64.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(TokenChoice, PowersAreAsCloseAsTheySay) {
  double most = 0;
  for (int i = 0; i <= 1 << 20; ++i) {
    float f = float(i) / (1 << 20), power = 0;
    for (size_t term = std::size(token_choice::kPower); term-- > 0;)
      power = std::fma(power, f, token_choice::kPower[term]);
    power = std::fma(power, f, 1.0f);
    most = std::max(most, std::abs(power / std::exp2(double(f)) - 1));
  }
  EXPECT_LT(most, std::exp2(-23.8));
}

/// What is left of the logits, and how likely it is, by a sort in doubles.
std::map<int32_t, double> left(const std::vector<float> &logits,
                               const TokenChoice &choice) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  auto weight = [&](int32_t token) {
    return std::exp(double(logits[token] - logits[order[0]]) /
                    choice.temperature);
  };
  std::erase_if(order, [&](int32_t t) { return weight(t) < choice.minP; });
  if (choice.topK && choice.topK < order.size())
    order.resize(choice.topK);
  double total = 0, sum = 0;
  for (int32_t token : order)
    total += weight(token);
  std::map<int32_t, double> kept;
  for (int32_t token : order) {
    if (choice.topP && sum >= total * choice.topP * 0x1p-32)
      break;
    sum += weight(token);
    kept[token] = weight(token);
  }
  for (auto &[token, part] : kept)
    part /= sum;
  return kept;
}

TEST(TokenChoice, DrawsWhatIsLeft) {
  SplitMix64 random(11);
  for (int turn = 0; turn < 60; ++turn) {
    // Two decimals, so that some are equal and none nearly so.
    std::vector<float> logits(30);
    for (float &logit : logits)
      logit = float(random() % 800) / 100;
    TokenChoice choice;
    choice.temperature = 0.5f + float(turn % 4);
    choice.topK = turn % 3 ? 0 : 7;
    choice.topP = turn % 2 ? 0 : uint32_t(0.83 * 0x1p32);
    choice.minP = turn % 5 ? 0 : 0.03f;
    std::set<int32_t> seen;
    for (uint64_t part = 0; part < 20000; ++part) {
      choice.random = part * (UINT64_MAX / 20000);
      seen.insert(chooseToken(logits, choice));
    }
    std::map<int32_t, double> expected = left(logits, choice);
    for (int32_t token : seen)
      EXPECT_TRUE(expected.contains(token)) << "turn " << turn;
    for (auto [token, part] : expected) // steps do not pass over these
      if (part > 1e-4)
        EXPECT_TRUE(seen.contains(token)) << "turn " << turn;
  }
}

TEST(TokenChoice, PlacesAreInTheOrderOfTokens) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  TokenChoice choice{.temperature = 1};
  auto at = [&](double part) {
    choice.random = uint64_t(part * 0x1p63) * 2;
    return chooseToken(logits, choice);
  };
  EXPECT_EQ(at(0.0), 0);
  EXPECT_EQ(at(0.1249), 0);
  EXPECT_EQ(at(0.1251), 1);
  EXPECT_EQ(at(0.3749), 1);
  EXPECT_EQ(at(0.3751), 2);
  EXPECT_EQ(at(0.9999), 2);
}

} // namespace
} // namespace tessera
