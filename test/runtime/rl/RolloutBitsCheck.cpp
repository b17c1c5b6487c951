// Whether prefill gives sampled tokens the log-probabilities of the journal,
// bit for bit:
//
//   rollout-bits-check PROGRAM DIRECTORY SAMPLES [MOST]
//
// PROGRAM is compiled from DIRECTORY, whose weights sampled what SAMPLES, the
// journal of a run, has. Of each sampled token, up to MOST of them, the text
// before it is read by prefill alone, in an empty KV cache. Prints the numbers
// of tokens and of those whose log-probability has other bits.
#include "runtime/generate/Generate.h"
#include "runtime/infer/DecodePrograms.h"
#include "runtime/infer/Sampler.h"
#include "runtime/rl/SampleJournal.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>

using namespace tessera;

namespace {

class Check {
public:
  Check(DecodePrograms &model, uint64_t most) : model(model), left(most) {
    const DecoderShape &shape = model.shape();
    pages.resize(std::size_t((shape.context + shape.page - 1) / shape.page));
    std::iota(pages.begin(), pages.end(), 0);
  }

  Status group(const rl::Group &group) {
    for (const rl::Sample &sample : group.samples) {
      std::vector<int32_t> text = group.promptTokens;
      for (std::size_t i = 0; i < sample.tokens.size() && left > 0; ++i) {
        auto logprob = logprobAfter(text, sample.tokens[i]);
        if (!logprob.ok())
          return logprob.status();
        --left, ++tokens;
        different += std::bit_cast<uint32_t>(*logprob) !=
                     std::bit_cast<uint32_t>(sample.logProbs[i]);
        text.push_back(sample.tokens[i]);
      }
    }
    return Status::success();
  }
  bool isDone() const { return left == 0; }

  uint64_t tokens = 0, different = 0;

private:
  StatusOr<float> logprobAfter(std::span<const int32_t> text, int32_t token) {
    const auto chunk = std::size_t(model.shape().chunk);
    for (std::size_t at = 0; at < text.size(); at += chunk)
      TESSERA_RETURN_IF_ERROR(model.prefill(
          {pages, int64_t(at)},
          text.subspan(at, std::min(chunk, text.size() - at)), {}));
    return logprobsOf(model.logits(0), token, 0, model.logSum(0)).chosen;
  }

  DecodePrograms &model;
  std::vector<int32_t> pages; ///< all are the one sequence's
  uint64_t left;
};

Status run(const std::string &program, const std::string &directory,
           const std::string &samples, uint64_t most) {
  GenerateOptions options;
  options.program = program;
  auto model = openModelDirectory(directory, options);
  if (!model.ok())
    return model.status();
  auto decoder = DecodePrograms::create((*model)->get());
  if (!decoder.ok())
    return decoder.status();
  Check check(**decoder, most);
  std::ifstream file(samples);
  std::string line;
  std::getline(file, line); // what they are of
  while (!check.isDone() && std::getline(file, line)) {
    auto group = rl::parseGroup(line, samples);
    if (!group.ok())
      return group.status();
    TESSERA_RETURN_IF_ERROR(check.group(*group));
  }
  std::printf("%llu %llu\n", static_cast<unsigned long long>(check.tokens),
              static_cast<unsigned long long>(check.different));
  return Status::success();
}

} // namespace

int main(int count, char **arguments) {
  if (count != 4 && count != 5) {
    std::fputs("usage: rollout-bits-check PROGRAM DIRECTORY SAMPLES [MOST]\n",
               stderr);
    return 2;
  }
  const uint64_t most =
      count == 5 ? std::strtoull(arguments[4], nullptr, 10) : UINT64_MAX;
  Status status = run(arguments[1], arguments[2], arguments[3], most);
  if (!status.ok())
    std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
