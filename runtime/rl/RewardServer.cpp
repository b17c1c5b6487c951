#include "runtime/client/HttpClient.h"
#include "runtime/rl/Reward.h"
#include "runtime/support/Text.h"

#include <atomic>
#include <nlohmann/json.hpp>

namespace tessera::rl {
namespace {

class RewardServer final : public Reward {
public:
  RewardServer(client::ServerAddress address, int64_t seconds)
      : address(std::move(address)), limit(seconds) {}

  StatusOr<double> score(const RewardQuestion &question) override {
    auto answer = client::askServer(
        address, "POST", address.path.empty() ? "/" : "",
        printQuestion(question, ++asked), limit, [](std::string_view) {},
        [this] { return interrupted.load(); });
    if (!answer.ok())
      return answer.status();
    constexpr int kFine = 200;
    if (answer->status != kFine)
      return Status::error("it answered {}: {}", answer->status,
                           oneLine(answer->body));
    nlohmann::json json = nlohmann::json::parse(answer->body, nullptr,
                                                /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("reward"))
      json = nlohmann::json(json["reward"]);
    if (!json.is_number())
      return Status::error("it answered {}, which is neither a number nor "
                           "{{\"reward\": NUMBER}}",
                           quote(oneLine(answer->body)));
    return checkedReward(json.get<double>());
  }

  void interrupt() override { interrupted = true; }

private:
  const client::ServerAddress address;
  const std::chrono::seconds limit;
  std::atomic<bool> interrupted = false;
  uint64_t asked = 0;
};

} // namespace

StatusOr<std::unique_ptr<Reward>> rewardServer(std::string_view url,
                                               int64_t seconds) {
  auto address = client::parseServerUrl(url);
  if (!address.ok())
    return address.status();
  return std::unique_ptr<Reward>(
      std::make_unique<RewardServer>(address.take(), seconds));
}

} // namespace tessera::rl
