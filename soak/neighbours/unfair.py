"""
`onceward serve` without accounts, for the control: everybody may hold and use as much as there is.

This is no setting of the product. It takes the place of what is being judged, so that the judge can be seen to fail.
"""
