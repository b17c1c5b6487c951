#include "models/RewardHead.h"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::models {

// The part of the class's name before ForSequenceClassification.
static std::string_view classPrefix(Family family) {
  switch (family) {
  case Family::Gpt2:
    return "GPT2";
  case Family::Llama:
    return "Llama";
  case Family::Mistral:
    return "Mistral";
  case Family::Qwen2:
    return "Qwen2";
  case Family::Qwen3:
    return "Qwen3";
  case Family::Mixtral:
    return "Mixtral";
  case Family::Qwen2Moe:
    return "Qwen2Moe";
  case Family::Qwen3Moe:
    return "Qwen3Moe";
  case Family::Gemma:
    return "Gemma";
  case Family::Gemma2:
    return "Gemma2";
  case Family::Gemma3:
    return "Gemma3Text";
  case Family::Phi3:
    return "Phi3";
  // Have none, or none that was compared with transformers.
  case Family::Dots1:
  case Family::DeepseekV2:
  case Family::DeepseekV3:
  case Family::SmolLm3:
  case Family::Granite:
  case Family::Olmo2:
  case Family::Olmo3:
  case Family::Olmoe:
  case Family::Glm:
  case Family::Glm4:
  case Family::Cohere:
  case Family::Cohere2:
  case Family::StarCoder2:
  case Family::StableLm:
  case Family::Ernie45:
  case Family::SeedOss:
  case Family::HunYuan:
  case Family::GptNeoX:
  case Family::GptOss:
  case Family::Mamba2:
  case Family::GraniteHybrid:
    break;
  case Family::Bert: // a cross-encoder
    return "Bert";
  }
  return "";
}

std::string scoreArchitecture(Family family) {
  const std::string_view prefix = classPrefix(family);
  return prefix.empty() ? std::string()
                        : fmt::format("{}ForSequenceClassification", prefix);
}

// What sentence-transformers writes of a reranker's relevance
// (SentenceModel.cpp), which is not part of the score.
constexpr std::string_view kOfRelevance[] = {
    "sentence_transformers", "sbert_ce_default_activation_function"};

bool readScoreHead(ConfigFields &fields, Family family) {
  const std::string own = scoreArchitecture(family);
  if (own.empty() ||
      std::ranges::count(fields.strings("architectures"), own) == 0)
    return false;
  // Absent: the reference's configuration classes have two.
  const Json *labels = fields.section("id2label");
  const int64_t count = labels ? static_cast<int64_t>(labels->size())
                               : fields.size("num_labels", 1 << 20, 2);
  if (count != 1)
    fields.fail("id2label",
                fmt::format("a classifier of {} labels is not supported, only "
                            "the one score of a reward model or reranker",
                            count));
  if (fields.find("quantization_config"))
    fields.fail(
        "quantization_config",
        "sequence classifiers with quantized weights are not supported");
  fields.ignore(kOfRelevance);
  return true;
}

StatusOr<std::string> withScoreHead(const std::string &text,
                                    const ModelSpec &spec) {
  const std::string own = scoreArchitecture(spec.family);
  if (own.empty())
    return Status::error("task: reward: {} has no ForSequenceClassification in "
                         "transformers, which is the layout of reward models",
                         name(spec.family));
  if (spec.hasScore)
    return text;
  auto config = nlohmann::ordered_json::parse(text);
  config["architectures"] = nlohmann::ordered_json::array({own});
  config["id2label"] = {{"0", "LABEL_0"}};
  config["label2id"] = {{"LABEL_0", 0}};
  return config.dump(2) + "\n";
}

} // namespace tessera::models
