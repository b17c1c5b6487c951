#include "tools/tessera/GenerateSettings.h"
#include "runtime/support/Text.h"
#include "tools/tessera/Environment.h"
#include "tools/tessera/QuantOptions.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

using namespace tessera;

// CLI11 lets negative numbers wrap around in unsigned options.
static CLI::Validator wholeNumber(uint64_t least) {
  return CLI::Validator(
      [least](const std::string &text) {
        uint64_t number = 0;
        const char *end = text.data() + text.size();
        auto [stop, code] = std::from_chars(text.data(), end, number);
        return code == std::errc() && stop == end && number >= least
                   ? std::string()
                   : fmt::format(
                         "must be a whole number of at least {}, got '{}'",
                         least, text);
      },
      "");
}

// "max-tokens" → "TESSERA_MAX_TOKENS"
static std::string environmentName(const std::string &name) {
  std::string result = "TESSERA_";
  for (char c : name)
    result += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return result;
}

CLI::Option *GenerateSettings::shared(CLI::Option *option,
                                      const std::string &name) {
  known[name] = option;
  return option->envname(environmentName(name))->capture_default_str();
}

void GenerateSettings::addSampling(CLI::App &command) {
  SamplingOptions &sampling = options.sampling;
  auto add = [&](const char *name, auto &value, const char *help) {
    sampled.emplace_back(name);
    values[name] = [&value] { return fmt::format("{}", value); };
    return shared(command.add_option(std::string("--") + name, value, help),
                  name);
  };
  add("max-tokens", options.maxTokens, "maximum number of tokens to generate")
      ->check(wholeNumber(1));
  add("temperature", sampling.temperature,
      "sampling temperature; 0: always the most likely token");
  add("top-k", sampling.topK, "sample from the k most likely tokens; 0: all");
  add("top-p", sampling.topP,
      "sample from the smallest set of tokens with this total probability");
  add("min-p", sampling.minP,
      "sample from tokens at least this times as likely as the most likely "
      "one");
  add("repetition-penalty", sampling.repetitionPenalty,
      "divide the logits of tokens that are in the prompt or the output by "
      "this");
  add("presence-penalty", sampling.presencePenalty,
      "subtract this from the logits of tokens that are in the output");
  add("frequency-penalty", sampling.frequencyPenalty,
      "subtract this from a token's logit for each time that it is in the "
      "output");
  add("seed", sampling.seed, "seed of sampling")->check(wholeNumber(0));
}

void GenerateSettings::addTo(CLI::App &command,
                             const std::vector<std::string> &words) {
  typed = &words;
  command
      .add_option(
          "RUN|DIR|FILE", place,
          "run directory, checkpoint (RUN/step-000100), model directory "
          "(Hugging Face), name of a model in the Hugging Face cache, GGUF "
          "file, or packaged model (tessera compile DIR --mode infer)")
      ->required();
  addSampling(command);
  shared(command.add_option("--device", options.device,
                            "device to run on: cpu, cuda:0, cuda-emu"),
         "device")
      ->type_name("NAME");
  shared(command.add_option("--threads", options.threads, "0: all processors"),
         "threads");
  command
      .add_option(
          "--adapter", adapter,
          "LoRA or DoRA adapter to generate with: a directory in PEFT's "
          "layout, for a model directory or a packaged model")
      ->type_name("DIR");
  command
      .add_option(
          "--recipe", recipe,
          "recipe.yaml of the inference programs, for a model directory")
      ->type_name("FILE");
  command
      .add_option("--set", set,
                  "override a key of the recipe, such as inference.context=512 "
                  "or precision.compute=fp32; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  addQuantOptions(command, set);
  addKvOption(command, set);
  addCacheOptions(
      command, cache, cacheGib,
      "of compiled programs, and of weights that tessera serve stored");
  addWeightCacheOption(command, keptGib,
                       "0: do not read weights that tessera serve stored; "
                       "other values only affect serve");
  command.add_flag("--quiet", quiet, "do not print settings and speed");
}

template <typename T>
void GenerateSettings::takeOne(const std::string &name,
                               const std::optional<T> &from, T &to) {
  const CLI::Option &option = *known.at(name);
  if (option.count() > 0) {
    sources[name] =
        isFromEnvironment(option, *typed) ? option.get_envname() : "given";
  } else if (from) {
    to = *from;
    sources[name] = "generation_config.json";
  }
}

void GenerateSettings::take(const GenerationConfig &config) {
  SamplingOptions &sampling = options.sampling;
  takeOne("max-tokens", config.maxTokens, options.maxTokens);
  takeOne("temperature", config.temperature, sampling.temperature);
  takeOne("top-k", config.topK, sampling.topK);
  takeOne("top-p", config.topP, sampling.topP);
  takeOne("min-p", config.minP, sampling.minP);
  takeOne("repetition-penalty", config.repetitionPenalty,
          sampling.repetitionPenalty);
  takeOne("presence-penalty", {}, sampling.presencePenalty);
  takeOne("frequency-penalty", {}, sampling.frequencyPenalty);
  takeOne("seed", {}, sampling.seed);
}

Status GenerateSettings::takeAndSay(const GenerationConfig &config,
                                    const TextSink &note) {
  take(config);
  TESSERA_RETURN_IF_ERROR(checkSampling(options.sampling));
  if (!config.unused.empty())
    note(fmt::format("generation_config.json: ignored unsupported keys: {}",
                     fmt::join(config.unused, ", ")));
  if (!quiet)
    note(describe());
  return Status::success();
}

std::vector<std::string_view> GenerateSettings::names() const {
  return {sampled.begin(), sampled.end()};
}

Status GenerateSettings::change(const std::string &name,
                                const std::string &value) {
  if (std::ranges::count(sampled, name) == 0)
    return Status::error("unknown setting {}; expected one of {}", quote(name),
                         choices(names()));
  SamplingOptions before = options.sampling;
  uint64_t tokens = options.maxTokens;
  CLI::Option *option = known.at(name);
  Status status;
  try {
    option->clear();
    option->add_result(value);
    option->run_callback();
    status = checkSampling(options.sampling);
  } catch (const CLI::Error &error) {
    status = Status::error("{}: {}", name, oneLine(error.what()));
  }
  if (!status.ok()) {
    options.sampling = before;
    options.maxTokens = tokens;
    return status;
  }
  sources[name] = "/set";
  return status;
}

ModelChoice GenerateSettings::choice(const std::string &command) const {
  ModelChoice choice;
  choice.place = place;
  choice.recipe = recipe;
  choice.set = set;
  choice.threads = options.threads;
  choice.decoder.device = options.device;
  choice.decoder.batch = 1;
  choice.decoder.pages = 0;
  choice.decoder.cache = cache;
  choice.decoder.cacheBytes = cacheGib << 30;
  choice.keepsWeights = keptGib > 0;
  choice.decoder.command = command;
  if (!quiet)
    choice.decoder.note = [](std::string_view line) {
      fmt::print(stderr, "tessera: {}\n", line);
    };
  return choice;
}

std::string GenerateSettings::describe() const {
  std::string line;
  for (const auto &[name, source] : sources)
    line += fmt::format("{} {} ({}), ", name, values.at(name)(), source);
  return line + (line.empty() ? "default settings" : "defaults otherwise");
}

std::string GenerateSettings::list() const {
  std::string lines;
  for (const std::string &name : sampled) {
    auto source = sources.find(name);
    lines += fmt::format("{:<20}{:<8} ({})\n", name, values.at(name)(),
                         source == sources.end() ? "default" : source->second);
  }
  return lines;
}
