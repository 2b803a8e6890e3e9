"""What is done when a rule is met. The platform does it: it sees the rule's status."""

import json

from smdebug.core.logger import get_logger

_KNOWN = ("stoptraining", "email", "sms")


class Actions:
    """The actions of a rule, of its `action_json`: one, or a list of them."""

    def __init__(self, actions_str="", rule_name=""):
        self.rule_name, self.actions = rule_name, []
        text = (actions_str or "").strip()
        if not text:
            return
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ValueError(f"action_json of {rule_name} is no JSON: {error}") from None
        self.actions = given if isinstance(given, list) else [given]
        for one in self.actions:
            if not isinstance(one, dict) or one.get("name") not in _KNOWN:
                raise ValueError(f"an action of {rule_name} is {one}: its name can be {', '.join(_KNOWN)}")

    def invoke(self) -> None:
        """The actions that follow."""
        for one in self.actions:
            get_logger().info(f"The rule {self.rule_name} asks for the action {one['name']}: the platform performs it")
