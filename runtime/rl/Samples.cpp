#include "runtime/rl/Samples.h"

#include <cmath>

namespace tessera::rl {

std::vector<double> advantagesOf(const Group &group, recipe::Baseline baseline,
                                 recipe::RewardScale scale) {
  double sum = 0, count = 0;
  for (const Sample &sample : group.samples)
    if (sample.reward) {
      sum += *sample.reward;
      ++count;
    }
  const double mean = count > 0 ? sum / count : 0;
  double squares = 0;
  for (const Sample &sample : group.samples)
    if (sample.reward)
      squares += (*sample.reward - mean) * (*sample.reward - mean);
  const double deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0;

  std::vector<double> advantages(group.samples.size(), 0.0);
  for (std::size_t i = 0; i < advantages.size(); ++i) {
    if (!group.samples[i].reward)
      continue;
    const double reward = *group.samples[i].reward;
    double &advantage = advantages[i] = reward;
    if (baseline == recipe::Baseline::Group)
      advantage = reward - mean;
    else if (baseline == recipe::Baseline::LeaveOneOut)
      advantage = count > 1 ? reward - (sum - reward) / (count - 1) : 0;
    if (scale == recipe::RewardScale::Group)
      advantage /= deviation + 1e-4;
  }
  return advantages;
}

} // namespace tessera::rl
