// Greedy texts of a compiled Hugging Face directory, for generate_oracle.py:
//
//   generate-check PROGRAM DIRECTORY COUNT OUTPUT < PROMPTS
//
// A line of PROMPTS has the tokens of one prompt. OUTPUT is, for each prompt,
// COUNT tokens in i32 and the COUNT rows of logits in f32 that they were chosen
// by; then, for as many of the prompts as decode together, COUNT tokens each.
#include "runtime/generate/Generate.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

using namespace tessera;

namespace {

class Check {
public:
  Check(Decoder &decoder, std::FILE *output, std::size_t count)
      : decoder(decoder), output(output), count(count) {}

  Status alone(std::span<const int32_t> prompt) {
    Sequence sequence;
    TESSERA_RETURN_IF_ERROR(decoder.read(sequence, prompt));
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    for (;;) {
      auto row = decoder.logits(0);
      logits.insert(logits.end(), row.begin(), row.end());
      tokens.push_back(best(row));
      if (tokens.size() == count)
        break;
      Sequence *one[] = {&sequence};
      TESSERA_RETURN_IF_ERROR(decoder.step(one, std::span(tokens).last(1)));
    }
    decoder.release(sequence);
    write(std::span<const int32_t>(tokens));
    write(std::span<const float>(logits));
    return Status::success();
  }

  Status together(std::span<const std::vector<int32_t>> prompts) {
    std::vector<Sequence> sequences(prompts.size());
    std::vector<Sequence *> all;
    std::vector<std::vector<int32_t>> tokens(prompts.size());
    std::vector<int32_t> newest(prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(decoder.read(sequences[i], prompts[i]));
      all.push_back(&sequences[i]);
      tokens[i].push_back(newest[i] = best(decoder.logits(0)));
    }
    while (tokens[0].size() < count) {
      TESSERA_RETURN_IF_ERROR(decoder.step(all, newest));
      for (std::size_t i = 0; i < prompts.size(); ++i)
        tokens[i].push_back(newest[i] = best(decoder.logits(int64_t(i))));
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      decoder.release(sequences[i]);
      write(std::span<const int32_t>(tokens[i]));
    }
    return Status::success();
  }

private:
  static int32_t best(std::span<const float> logits) {
    return int32_t(std::ranges::max_element(logits) - logits.begin());
  }
  template <typename T> void write(std::span<const T> values) {
    std::fwrite(values.data(), sizeof(T), values.size(), output);
  }

  Decoder &decoder;
  std::FILE *output;
  std::size_t count;
};

std::vector<std::vector<int32_t>> readPrompts() {
  std::vector<std::vector<int32_t>> prompts;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    prompts.emplace_back(std::istream_iterator<int32_t>(words),
                         std::istream_iterator<int32_t>());
  }
  return prompts;
}

Status run(const std::string &program, const std::string &directory,
           std::size_t count, std::FILE *output) {
  GenerateOptions options;
  options.program = program;
  auto model = openModelDirectory(directory, options);
  if (!model.ok())
    return model.status();
  auto decoder = Decoder::create((*model)->get());
  if (!decoder.ok())
    return decoder.status();
  Check check(**decoder, output, count);
  std::vector<std::vector<int32_t>> prompts = readPrompts();
  for (const auto &prompt : prompts)
    TESSERA_RETURN_IF_ERROR(check.alone(prompt));
  auto most = std::size_t((*decoder)->shape().buckets.back());
  return check.together(
      std::span(prompts).first(std::min(most, prompts.size())));
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 5)
    return 2;
  std::FILE *output = std::fopen(argv[4], "wb");
  if (!output)
    return 2;
  Status status = run(argv[1], argv[2], std::stoul(argv[3]), output);
  if (!status.ok())
    std::fprintf(stderr, "generate-check: %s\n", status.message().c_str());
  return std::fclose(output) == 0 && status.ok() ? 0 : 1;
}
