"""Callbacks that show what is observed while it happens.

`Alerts` says what is wrong; `LiveDashboard` redraws the dashboard after each epoch, in a notebook or in a file;
`IntrospectionTensorBoard` writes for TensorBoard. What ties the recording to the epochs is private to `_boundary`.
"""

from keras_introspect.callbacks.alerts import Alerts
from keras_introspect.callbacks.live_dashboard import LiveDashboard
from keras_introspect.callbacks.tensorboard import IntrospectionTensorBoard

__all__ = ["Alerts", "IntrospectionTensorBoard", "LiveDashboard"]
